#!/bin/sh
# Builds the container image:  deploy/image.sh NAME cpu|tensorrt
set -eu
cd "$(dirname "$0")/.."
name=$1 engine=$2
if ! docker info >/dev/null 2>&1; then
    echo "image: no Docker engine answers here (docker info fails), so nothing was built." >&2
    echo "       Start one, or let podman or buildah read the same Dockerfile:" >&2
    echo "           buildah build --build-arg ENGINE=$engine --tag $name:$engine ." >&2
    echo "       Without any engine, as root on Debian, the same steps run in a clean root:" >&2
    echo "           python3 deploy/check_image.py --engine $engine" >&2
    exit 1
fi
docker build --build-arg "ENGINE=$engine" --tag "$name:$engine" .
