"""Drives one piece of work against one server for some seconds, and takes the figures."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
import numpy as np

from helpers import process_tree
from helpers.raw_http2 import INFER, frame
from helpers.server import NO_DEBUG
from load.targets import Target
from load.work import H2LOAD, Figures, Work, is_right, request

SPARE_S = 60.0  # over the measured time, before a client is given up


def has_h2load() -> bool:
    """Whether h2load (nghttp2's load generator, in C) is installed."""
    return shutil.which("h2load") is not None


def install_h2load() -> None:
    """Installs h2load where that is simple: Debian, as root. Else says what will be missing."""
    if has_h2load():
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("bench: apt-get install nghttp2-client (h2load, the client for small messages)")
        for step in (["update"], ["install", "-y", "--no-install-recommends", "nghttp2-client"]):
            subprocess.run(["apt-get", "-qq", *step], check=False, stdout=subprocess.DEVNULL)
    if not has_h2load():
        print("bench: no h2load (Debian: nghttp2-client). A Python client sends the small messages")
        print("       too: it is slower than the native transport, so those rows show the client.")


def reply_to(target: Target, model: str) -> bytes:
    """One reply, on a connection of its own."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(target.address, options=options) as channel:
        method = channel.unary_unary(INFER, request_serializer=bytes, response_deserializer=bytes)
        return method(request(model), timeout=60)


def measure(target: Target, work: Work, repository: Path, seconds: float) -> Figures:
    """Checks one reply number by number, warms up, and measures.

    Raises:
        ValueError: The reply is wrong, or requests failed: no figures of a server that errs.
    """
    reply = reply_to(target, work.model)
    if not is_right(repository, work.model, reply, is_echo=target.is_echo):
        raise ValueError(f"{target.name} answers {work.model} wrongly")
    run = _h2load if work.client == H2LOAD and has_h2load() else _grpc_client
    if seconds >= 1:
        run(target, work, len(reply), 1.0)  # warms up
    figures = run(target, work, len(reply), seconds)
    if figures.failed:
        raise ValueError(f"{target.name}: {figures.failed} requests of {work.name} failed")
    return figures


def _figures(latencies_s: np.ndarray, measured_s: float, cpu_s: float, failed: int) -> Figures:
    count = max(1, len(latencies_s))
    p50, p99 = np.percentile(latencies_s, [50, 99]) if len(latencies_s) else (np.nan, np.nan)
    return Figures(
        rate=len(latencies_s) / measured_s,
        p50_ms=float(p50) * 1e3,
        p99_ms=float(p99) * 1e3,
        cpu_s_per_1000=cpu_s / count * 1e3,
        failed=failed,
    )


def _grpc_client(target: Target, work: Work, num_reply_bytes: int, seconds: float) -> Figures:
    del num_reply_bytes  # it looks for itself
    load = [work.model, str(work.connections), str(work.streams), str(seconds)]
    before_s = process_tree.cpu_s(target.pid)
    done = subprocess.run(
        [sys.executable, "-m", "load.grpc_client", target.address, *load],
        stdout=subprocess.PIPE,
        check=True,
        timeout=seconds + SPARE_S,
        env={**os.environ, **NO_DEBUG},
    )
    cpu_s = process_tree.cpu_s(target.pid) - before_s
    seen = json.loads(done.stdout)
    return _figures(np.array(seen["latencies_s"]), seen["s"], cpu_s, seen["failed"])


def _h2load(target: Target, work: Work, num_reply_bytes: int, seconds: float) -> Figures:
    whole_s = max(1, round(seconds))  # h2load counts whole seconds
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(frame(request(work.model)))
        command = ["h2load", "-t1", f"-c{work.connections}", f"-m{work.streams}", f"-D{whole_s}"]
        command += ["-d", str(body), f"--log-file={log}", "-w20", "-W24"]
        command += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        before_s = process_tree.cpu_s(target.pid)
        done = subprocess.run(
            [*command, f"http://{target.address}{INFER}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=seconds + SPARE_S,
        )
        cpu_s = process_tree.cpu_s(target.pid) - before_s
        columns = np.loadtxt(log, dtype=np.int64, ndmin=2)  # start in us, HTTP status, took in us
    latencies_s = columns[columns[:, 1] == 200, 2] / 1e6
    failed = _number(r"(\d+) failed", done.stdout) + int((columns[:, 1] != 200).sum())
    # An error has no body, and h2load does not look at grpc-status: the volume tells.
    wanted = len(latencies_s) * (num_reply_bytes + len(frame(b"")))
    if _number(r"\((\d+)\) data", done.stdout) < wanted:
        failed += 1
    return _figures(latencies_s, whole_s, cpu_s, failed)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found, f"h2load printed no {pattern}:\n{text}"
    return int(found[1])
