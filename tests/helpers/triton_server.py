"""The real tritonserver, as the wheel nvidia-pytriton brings it, with its Python backend."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

import grpc

from helpers.environments import python_environment

WHEEL = "nvidia-pytriton==0.7.0"
TRITON = "Triton 2.51.0"  # as its metadata name it
_REGION = "triton_python_backend_shm_region_"
START_S = 120.0
STOP_S = 30.0


@contextmanager
def triton_serving(repository: Path, folder: Path, arguments: Sequence[str]) -> Iterator[str]:
    """The address of a tritonserver that is up; it ends with the context.

    Args:
        repository: Of models for the Python backend.
        folder: An empty one for what the server needs beside it.
        arguments: More of its flags.
    """
    root = _package()
    backends = _backends(root, folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        str(root / "tritonserver/bin/tritonserver"),
        *(f"--model-repository={repository}", f"--backend-directory={backends}"),
        f"--cache-directory={root / 'tritonserver/caches'}",
        *("--grpc-address=127.0.0.1", f"--grpc-port={port}", "--exit-timeout-secs=3"),
        *("--allow-http=false", "--allow-metrics=false"),
        *arguments,
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=_environment(root), start_new_session=True
        )
    try:
        address = f"127.0.0.1:{port}"
        _wait(address, process, folder / "log")
        yield address
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        _end_rest(process)


def _end_rest(process: subprocess.Popen[bytes]) -> None:
    """The models run in processes of their own, which outlive a server that crashed."""
    names: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(folder.name)) == process.pid:
                names += (folder / "cmdline").read_text().split("\0")
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for name in names:
        if name.startswith(_REGION):
            Path("/dev/shm", name).unlink(missing_ok=True)


def _package() -> Path:
    interpreter = python_environment("tritonserver", WHEEL)
    major, minor = sys.version_info[:2]
    return interpreter.parents[1] / f"lib/python{major}.{minor}/site-packages/pytriton"


def _backends(root: Path, folder: Path) -> Path:
    """The backends with the stub of our Python, which runs the models."""
    backends = folder / "backends"
    shutil.copytree(root / "tritonserver/backends", backends)
    version = sysconfig.get_python_version()
    stub = root / f"tritonserver/python_backend_stubs/{version}/triton_python_backend_stub"
    shutil.copy(stub, backends / "python" / stub.name)
    return backends


def _environment(root: Path) -> dict[str, str]:
    """It finds its own libraries, the one of our Python, and numpy in the wheel's environment."""
    site = root.parent
    libraries = f"{site / 'nvidia_pytriton.libs'}:{sysconfig.get_config_var('LIBDIR')}"
    known = ("HOME", "LANG", "TMPDIR")
    return {
        **{name: os.environ[name] for name in known if name in os.environ},
        "LD_LIBRARY_PATH": libraries,
        "PYTHONPATH": str(site),
        "PATH": f"{root.parents[3] / 'bin'}:{os.environ['PATH']}",
    }


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = monotonic() + START_S
    path = "/inference.GRPCInferenceService/ServerLive"
    with grpc.insecure_channel(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
        while process.poll() is None and monotonic() < end:
            try:
                if call(b"", timeout=5, wait_for_ready=True):
                    return
            except grpc.RpcError:
                continue
    raise AssertionError(f"tritonserver is not up\n{log.read_text(errors='replace')}")
