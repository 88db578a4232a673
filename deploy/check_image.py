"""Runs the Dockerfile without a container engine: its steps in a clean root, then the result.

    sudo python3 deploy/check_image.py [--engine cpu|tensorrt] [--work FOLDER] [--build-only]

Needs root and debootstrap. Each stage is a copy of its base's root; RUN is a chroot; `debian:*` is
made by debootstrap. The image is then run in a network of its own, as its own user, with its own
ENTRYPOINT, CMD and HEALTHCHECK, on the demo models; it is asked for one inference, and stopped by
its STOPSIGNAL, which must end it with status 0. What this cannot show: layers, caching, a registry,
and the limits of a real engine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
READY_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
QUESTIONS = (
    ["headrace-client", "models"],
    ["headrace-client", "infer", "digits", "--input", f"input={[[0.0] * 64]}"],
)
# What a package client of this host needs to reach its index, where the host has such settings.
NETWORK_VARIABLES = re.compile(
    r"(PIP_(?!FIND_LINKS).*|https?_proxy|no_proxy|SSL_CERT_.*)", re.IGNORECASE
)


@dataclass
class Stage:
    """One FROM: a root folder and what its instructions set."""

    root: Path
    env: dict[str, str]
    args: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    stop_signal: str = "SIGTERM"


def instructions(text: str) -> list[tuple[str, str]]:
    """Split a Dockerfile into (KEYWORD, rest), comments gone and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", "", "\n".join(lines))
    pairs = (line.strip().split(None, 1) for line in joined.splitlines() if line.strip())
    return [(keyword.upper(), rest) for keyword, rest in pairs]


def expand(text: str, values: dict[str, str]) -> str:
    """Replace $NAME and ${NAME}; an unknown name is an error here, unlike in Docker."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values[match[1]], text)


def chroot(
    stage: Stage, argv: list[str], *, setup: str = "", net: tuple[str, ...] = (), **popen: object
) -> subprocess.Popen[str]:
    """Start argv inside the stage's root, with /proc and /dev, in a mount namespace of its own.

    Args:
        stage: Whose root, user, environment and working directory.
        argv: The command, looked up inside.
        setup: Shell words ending in `&&`, run outside before the root is entered.
        net: How to get at another network namespace: a command prefix.
        popen: Handed on to Popen.
    """
    root = shlex.quote(str(stage.root))
    script = (
        f"mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && {setup} "
        f"exec chroot --userspec={stage.user} {root} "
        f"/usr/bin/env --chdir={shlex.quote(stage.workdir)} {shlex.join(argv)}"
    )
    command = [*net, "unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    return subprocess.Popen(command, env=stage.env, text=True, **popen)  # type: ignore[call-overload,no-any-return]


def run(stage: Stage, command: str) -> None:
    """RUN, in shell form, with what the network of this host needs."""
    network = {
        name: value for name, value in os.environ.items() if NETWORK_VARIABLES.fullmatch(name)
    }
    builder = Stage(
        stage.root, network | stage.env | stage.args, workdir=stage.workdir, user=stage.user
    )
    if status := chroot(builder, ["/bin/sh", "-c", command]).wait():
        sys.exit(f"RUN ended with {status}: {command}")


def copy(stage: Stage, rest: str, stages: dict[str, Stage], context: Path) -> None:
    """COPY [--from=STAGE] SOURCE... TARGET."""
    *sources, target = rest.split()
    origin = context
    if sources[0].startswith("--from="):
        origin = stages[sources.pop(0).removeprefix("--from=")].root
    destination = stage.root / os.path.normpath(Path(stage.workdir, target)).lstrip("/")
    for source in sources:
        path = origin / source.lstrip("/")
        if path.is_dir():
            shutil.copytree(path, destination, symlinks=True, dirs_exist_ok=True)
        else:
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, destination / path.name if target.endswith("/") else destination)


def apply(stage: Stage, keyword: str, rest: str, build_args: dict[str, str]) -> None:
    """Carry out an instruction that needs nothing but its own stage."""
    match keyword:
        case "RUN":
            run(stage, rest)
        case "ARG":
            name, _, default = rest.partition("=")
            stage.args[name] = build_args.get(name, default)
        case "ENV":
            words = shlex.split(expand(rest, stage.args | stage.env))
            stage.env |= dict(word.split("=", 1) for word in words)
        case "WORKDIR":
            stage.workdir = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "USER":
            stage.user = rest
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        case "CMD":
            stage.command = json.loads(rest)
        case "HEALTHCHECK":
            stage.health = ["/bin/sh", "-c", rest.split("CMD ", 1)[1]]
        case "STOPSIGNAL":
            stage.stop_signal = rest
        case "LABEL" | "EXPOSE":
            pass
        case _:
            sys.exit(f"the Dockerfile uses {keyword}, which this check does not know")


def base_root(image: str, work: Path) -> Path:
    """Return a root of `debian:RELEASE[-slim]`, made once."""
    release = re.fullmatch(r"debian:([a-z]+)(-slim)?", image)
    if not release:
        sys.exit(f"base image {image}: only debian:RELEASE can be made here")
    root = work / f"base-{release[1]}"
    if not (root / ".complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", release[1], str(root)], check=True)
        (root / ".complete").touch()
    return root


def lend_network(root: Path) -> None:
    """Give a stage this host's resolver and certificates, as an engine and its operator would."""
    for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def build(work: Path, build_args: dict[str, str]) -> Stage:
    """Run every instruction of the Dockerfile; return the last stage."""
    stages: dict[str, Stage] = {}
    global_args: dict[str, str] = {}
    stage: Stage | None = None
    context = export_context(work / "context")
    for keyword, rest in instructions((REPOSITORY / "Dockerfile").read_text("utf-8")):
        print(f"==> {keyword} {rest}", flush=True)
        if keyword == "FROM":
            image, _, name = expand(rest, global_args | build_args).partition(" AS ")
            parent = stages.get(image)
            root = work / f"stage-{name}"
            shutil.rmtree(root, ignore_errors=True)
            subprocess.run(
                [
                    "cp",
                    "-a",
                    "--reflink=auto",
                    str(parent.root if parent else base_root(image, work)),
                    str(root),
                ],
                check=True,
            )
            lend_network(root)
            env = (
                dict(parent.env)
                if parent
                else {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"}
            )
            stage = stages[name] = Stage(root, env, workdir=parent.workdir if parent else "/")
        elif stage is None:
            name, _, default = rest.partition("=")
            global_args[name] = default
        elif keyword == "COPY":
            copy(stage, rest, stages, context)
        else:
            apply(stage, keyword, rest, build_args)
    assert stage is not None, "a Dockerfile has a FROM"
    return stage


def export_context(folder: Path) -> Path:
    """Lay out what .dockerignore lets through: an allow-list, `*` first and `!PATH` after it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    patterns = (REPOSITORY / ".dockerignore").read_text("utf-8").split("\n")
    for allowed in (line[1:] for line in patterns if line.startswith("!")):
        source = REPOSITORY / allowed
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(source, folder / allowed, ignore=ignore)
        else:
            shutil.copy(source, folder / allowed)
    return folder


def inside(stage: Stage, argv: list[str], server: subprocess.Popen[str]) -> None:
    """Run a command in the image, in the server's network, and fail with it."""
    print("==>", shlex.join(argv), flush=True)
    net = ("nsenter", f"--net=/proc/{server.pid}/ns/net")
    if status := chroot(stage, argv, net=net).wait(timeout=60):
        sys.exit(f"{shlex.join(argv)} ended with {status}")


def wait_ready(server: subprocess.Popen[str]) -> None:
    """Read the server's output up to the line that says it is ready."""
    assert server.stdout is not None, "stdout is a pipe"
    started = time.monotonic()
    watchdog = threading.Timer(READY_TIMEOUT_S, server.kill)
    watchdog.start()
    for line in server.stdout:
        print(line, end="", flush=True)
        if line.startswith("headrace ready:"):
            print(f"==> ready after {time.monotonic() - started:.1f} s")
            watchdog.cancel()
            return
    sys.exit(f"the server ended with {server.wait()} before it was ready")


def try_out(stage: Stage) -> None:
    """Start the image on the demo models, check its health, ask it once, stop it."""
    models = shlex.quote(str(REPOSITORY / "deploy/models"))
    setup = (
        f"mount --bind -o ro {models} {shlex.quote(str(stage.root))}/models && ip link set lo up &&"
    )
    argv = [*stage.entrypoint, *stage.command]
    print("==>", shlex.join(argv), flush=True)
    server = chroot(stage, argv, setup=setup, net=("unshare", "--net"), stdout=subprocess.PIPE)
    try:
        wait_ready(server)
        for question in (stage.health, *QUESTIONS):
            inside(stage, question, server)
        server.send_signal(signal.Signals[stage.stop_signal])
        if status := server.wait(timeout=STOP_TIMEOUT_S):
            sys.exit(f"{stage.stop_signal} ended the server with {status}, not 0")
    finally:
        server.kill()


def main() -> None:
    """Build, then try out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", choices=("cpu", "tensorrt"), default="cpu")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp/headrace-image"))
    parser.add_argument("--build-only", action="store_true", help="do not start the result")
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        sys.exit("needs root and debootstrap (apt-get install debootstrap)")
    options.work.mkdir(parents=True, exist_ok=True)
    stage = build(options.work, {"ENGINE": options.engine})
    size_mib = sum(p.lstat().st_size for p in stage.root.rglob("*") if not p.is_symlink()) / 2**20
    print(f"==> {stage.root}: {size_mib:.0f} MiB")
    if not options.build_only:
        try_out(stage)
    print("==> image check passed")


if __name__ == "__main__":
    main()
