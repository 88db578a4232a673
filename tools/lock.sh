#!/bin/sh
# Pins every package that the workspace may install, into constraints.txt, for Python 3.11 and later.
# Options go to uv: `tools/lock.sh --upgrade` takes everything to its newest, without it little moves.
set -eu
cd "$(dirname "$0")/.."
{
    echo '-e ./proto'
    echo '-e ./server[onnxruntime,onnxruntime-gpu,tensorrt,cuda,native]'
    echo '-e ./client[bench]'
} | .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate "$@" \
    --no-emit-package headrace-proto --no-emit-package headrace-server --no-emit-package headrace-client \
    --group dev --output-file constraints.txt -
