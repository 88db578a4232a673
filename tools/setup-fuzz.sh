#!/bin/sh
# Makes .venv-fuzz: headrace as pinned in constraints.txt, and the fuzzer, which needs a Python that it knows.
set -eu
cd "$(dirname "$0")/.."
echo "setup: .venv-fuzz with the fuzzer of the group 'fuzz' in pyproject.toml"
.venv/bin/uv venv --quiet --clear --python .venv/bin/python .venv-fuzz
.venv/bin/uv pip install --quiet --python .venv-fuzz/bin/python --constraint constraints.txt --group fuzz \
    --editable ./proto --editable './server[onnxruntime]' --editable ./client onnx hypothesis ml-dtypes
touch .venv-fuzz/.stamp
