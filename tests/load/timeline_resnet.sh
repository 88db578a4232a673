#!/bin/sh
# A timeline of ResNet-50 fp16, served over gRPC on loopback from a GPU, and a picture of 5 ms of it.
#
#   sh tests/load/timeline_resnet.sh [FOLDER]      writes FOLDER/trace.json and timeline.svg
#
# Wants what load.gpu_serve wants. Every request is recorded, in at most 14 MB.
set -eu
folder=${1:-.}
mkdir -p "$folder"
export PYTHONPATH="proto:server:client:tests${PYTHONPATH:+:$PYTHONPATH}"
HEADRACE_TIMELINE="$folder/trace.json" HEADRACE_TIMELINE_RATE=1 HEADRACE_TIMELINE_MAX_BYTES=14000000 \
    python3 -m load.gpu_serve --model resnet50_fp16_u8 --no-lonely --rows "${ROWS:-8}" \
    --transports "${TRANSPORT:-native}" --slots "${SLOTS:-4}" --seconds "${SECONDS_A_RUN:-2}"
python3 -m headrace timeline "$folder/trace.json" --picture "$folder/timeline.svg" --for 5
