#!/bin/sh
# Makes .venv with headrace, its client and every tool, from nothing but Python 3.11 or later.
set -eu
cd "$(dirname "$0")/.."

is_new_enough() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: Python 3.11 or later is needed, and none was found." >&2
    echo "       Debian 12: apt-get install python3 python3-venv; or set PYTHON=/path/to/python3" >&2
    exit 1
}

python=$(find_python)

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        # Debian ships the interpreter without these two.
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
            echo "setup: apt-get install python3-venv (this Python has no ensurepip)"
            apt-get update -qq
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
        else
            echo "setup: $python cannot make a virtual environment (no ensurepip)." >&2
            echo "       Debian and Ubuntu: sudo apt-get install python3-venv; then run make again" >&2
            exit 1
        fi
    fi
    echo "setup: python3 -m venv .venv ($("$python" --version))"
    rm -rf .venv
    "$python" -m venv .venv
fi

echo "setup: pip install uv (installs the rest in seconds)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv

echo "setup: uv pip install headrace-proto, headrace-server, headrace-client and the tools, as pinned in constraints.txt"
.venv/bin/uv pip install --quiet --python .venv/bin/python --constraint constraints.txt --group dev \
    --editable ./proto --editable './server[onnxruntime,native]' --editable ./client
touch .venv/.stamp
echo "setup: done: .venv/bin/headrace, .venv/bin/headrace-client"
