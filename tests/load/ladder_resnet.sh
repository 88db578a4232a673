#!/bin/sh
# The ladder for ResNet-50 fp16 on a GPU, with one image a request and with eight.
#
#   sh tests/load/ladder_resnet.sh [FOLDER]     writes FOLDER/ladder-1.json, .svg and ladder-8.json, .svg
#
# Wants onnxruntime with its CUDA provider, and the repository as the working folder; nothing of
# headrace needs to be installed. SECONDS_A_RUNG and RUNGS may be set.
set -eu
folder=${1:-.}
mkdir -p "$folder"
export PYTHONPATH="proto:server:client:tests${PYTHONPATH:+:$PYTHONPATH}"
models=$(mktemp -d)
trap 'rm -rf "$models"' EXIT
python3 -c "
import sys
from pathlib import Path
from load.models import write_repository
write_repository(Path(sys.argv[1]), ['resnet50_fp16'])
" "$models"
for rows in 1 8; do
    python3 -m headrace ladder "$models/resnet50_fp16" --device cudart --rows "$rows" \
        --seconds "${SECONDS_A_RUNG:-2}" \
        --rungs "${RUNGS:-sync,async,double,2,4,8,16,graphs}" \
        --json "$folder/ladder-$rows.json" --chart "$folder/ladder-$rows.svg"
    echo
done
