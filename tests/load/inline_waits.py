"""What others wait for beside large requests to a model of free dimensions: `-m load.inline_waits`.

Such a model has a thread of its own, however short the smallest request takes (docs/decisions.md).
Prints the calls a second of an identity of 64 bytes with a free dimension, which pay for that, and
percentiles of a small model's calls, one after another, while a client sends 56 MB again and again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import monotonic

import numpy as np
from onnx import helper

from helpers import onnx_models
from helpers.messages import infer, tensor
from helpers.rpc_client import RpcClient
from helpers.server import NO_DEBUG, TRANSPORTS, Server, serving
from load.bench_client import bench
from load.models import write_repository

FLOATS = 14_000_000
SECONDS = 6
ROW = {"a": np.zeros((1, 4), np.float32), "b": np.zeros((1, 2), np.int32)}


def write_models(folder: Path) -> Path:
    """Write the identity, the small model, and one that computes; return the folder."""
    x, y = (onnx_models.port(name, onnx_models.FLOAT, ["batch", "n"]) for name in "xy")
    nodes = [helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Exp", ["s"], ["y"])]
    onnx_models.save(onnx_models.model(nodes, [x], [y]), folder / "large/1/model.onnx")
    return write_repository(folder, ["identity_uint8", "pair"])


def calls_per_s(server: Server) -> float:
    """Return how many calls of the identity 32 callers get answered, the median of three runs."""
    load = ("identity_uint8", "--shape", "x:64", "-c", "32", "--duration-s", "4")
    rates: list[float] = [bench(server, *load)["throughput_per_s"] for _ in range(3)]
    return median(rates)


def send_large(server: Server, has_ended: Event) -> None:
    """Send large requests until it is told that it has ended."""
    shape = (1, FLOATS)
    message = infer("large", [tensor("x", "FP32", shape)], [bytes(4 * FLOATS)])
    with RpcClient(server.address) as client:
        while not has_ended.is_set():
            client.start(message, timeout_s=30).result()


def waits_s(server: Server) -> list[float]:
    """Return what calls of the small model took meanwhile, rising."""
    has_ended, took_s = Event(), []
    sender = Thread(target=send_large, args=(server, has_ended))
    with RpcClient(server.address) as client:
        client.infer("pair", ROW)
        sender.start()
        until = monotonic() + SECONDS
        while (began_at := monotonic()) < until:
            client.infer("pair", ROW)
            took_s.append(monotonic() - began_at)
        has_ended.set()
        sender.join()
    return sorted(took_s)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        repository = write_models(Path(folder))
        for transport in TRANSPORTS:
            arguments = ("--model-repository", repository, "--transport", transport)
            with serving(*arguments, env=NO_DEBUG) as server:
                rate, took_s = calls_per_s(server), waits_s(server)
            p50_ms, p99_ms = (1e3 * took_s[int(share * len(took_s))] for share in (0.5, 0.99))
            waits = f"p50 {p50_ms:.1f} p99 {p99_ms:.1f} max {1e3 * took_s[-1]:.1f} ms"
            print(f"{transport:>7}: identity {rate:,.0f} calls/s; beside large requests {waits}")


if __name__ == "__main__":
    main()
