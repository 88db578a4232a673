#!/bin/sh
# Makes .venv-proto with the pinned protobuf generator, which cannot live beside today's protobuf.
set -eu
cd "$(dirname "$0")/.."
echo "setup: .venv-proto with the generator of the group 'proto' in pyproject.toml"
.venv/bin/uv venv --quiet --clear --python .venv/bin/python .venv-proto
.venv/bin/uv pip install --quiet --python .venv-proto/bin/python --group proto
touch .venv-proto/.stamp
