"""A GPU model served over gRPC on loopback: throughput, latency, cost, and a soak of its memory.

    PYTHONPATH=proto:server:client:tests python3 -m load.gpu_serve [--model resnet50_fp16_u8]
        [--rows 1 8] [--transports grpcio native] [--slots 8] [--graphs usual|named|off]
        [--no-lonely] [--seconds 4] [--soak 0]

Needs a GPU and onnxruntime-gpu. Clients are processes of their own, each with a closed loop of
callers that send the same bytes; every answer's length is checked, and one answer's numbers are
held against ONNX Runtime on the CPU. Graphs are what a model gets without a word about them, or
those of the requests' sizes alone, or off. With `--soak`, the last combination goes on for so many
seconds, and the memory of the server's processes and of the GPU is sampled meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pynvml

from headrace_proto.v1 import inference_pb2 as pb
from helpers import process_tree
from load.models import CATALOGUE, expected, write_repository

METHOD = "/inference.GRPCInferenceService/ModelInfer"
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
READY = re.compile(r"^headrace ready: grpc=(\S+)")
SAMPLE_EVERY_S = 2.0
TOLERANCE = 0.02  # of the largest output, for FP16


def message(model: str, rows: int) -> bytes:
    """A request with so many rows, on the wire."""
    x = CATALOGUE[model].sample(rows)
    request = pb.ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype=CATALOGUE[model].datatype, shape=x.shape)
    request.raw_input_contents.append(x.tobytes())
    return request.SerializeToString()


async def client(address: str, model: str, rows: int, callers: int, seconds: float) -> None:
    """Be one client process: print latencies and failures as JSON."""
    body, latencies_s, num_failed = message(model, rows), [], 0
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        call: Any = channel.unary_unary(METHOD)
        size = len(await call(body, timeout=60, wait_for_ready=True))
        until = time.perf_counter() + seconds

        async def caller() -> None:
            nonlocal num_failed
            while (sent_at := time.perf_counter()) < until:
                try:
                    is_right = len(await call(body, timeout=60)) == size
                except grpc.aio.AioRpcError:
                    is_right = False
                if is_right:
                    latencies_s.append(time.perf_counter() - sent_at)
                else:
                    num_failed += 1

        await asyncio.gather(*(caller() for _ in range(callers)))
    counts, edges = np.histogram(np.array(latencies_s), np.geomspace(1e-4, 10, 2001))
    print(
        json.dumps({"counts": counts.tolist(), "edges": edges.tolist(), "failed": num_failed}),
        flush=True,
    )


@contextmanager
def served(repository: Path, transport: str, extra: Sequence[str]) -> Iterator[tuple[str, int]]:
    """A server on this repository: its address and process id."""
    command = [sys.executable, "-c", "from headrace.cli import main; main()", "serve"]
    command += ["--model-repository", str(repository)]
    command += ["--grpc-port=0", "--metrics-port=0", "--grpc-address=127.0.0.1"]
    command += ["--transport", transport, "--device=cudart", *extra]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := READY.match(line):
                break
        else:
            raise AssertionError(f"headrace serve ended with {process.wait()}")
        yield found[1], process.pid
    finally:
        process.terminate()
        process.wait(60)


def check(address: str, repository: Path, model: str) -> None:
    """Hold one answer against the CPU.

    Raises:
        AssertionError: It is wrong.
    """
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        call: Any = channel.unary_unary(METHOD)
        raw = call(message(model, 1), timeout=60)
    reply = pb.ModelInferResponse.FromString(raw)
    wanted = expected(repository, model, CATALOGUE[model].sample())
    got = np.frombuffer(reply.raw_output_contents[0], wanted.dtype).reshape(wanted.shape)
    error = np.abs(got.astype(float) - wanted).max() / np.abs(wanted).max()
    assert error <= TOLERANCE, f"{model} answers wrongly: off by {error:.3f} of the largest"


class Memory:
    """Samples of the server's host memory and of the GPU's, in MiB, by seconds."""

    def __init__(self, pid: int) -> None:
        pynvml.nvmlInit()
        self._gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        self._pid = pid
        self._began_at = time.monotonic()
        self.samples: list[tuple[float, float, float, int]] = []

    def sample(self) -> None:
        """Take one more."""
        used = pynvml.nvmlDeviceGetMemoryInfo(self._gpu).used
        busy = int(pynvml.nvmlDeviceGetUtilizationRates(self._gpu).gpu)
        rss = process_tree.rss_bytes(self._pid)
        self.samples.append((time.monotonic() - self._began_at, rss / 2**20, used / 2**20, busy))

    @property
    def busy_share(self) -> float:
        """Median of the GPU's utilisation as NVML has it."""
        return float(np.median([sample[3] for sample in self.samples])) / 100

    def by_minute(self) -> Iterator[str]:
        """One line for each minute."""
        for minute in range(int(self.samples[-1][0] // 60) + 1):
            part = np.array([s for s in self.samples if minute * 60 <= s[0] < minute * 60 + 60])
            if len(part) > 1:
                host, gpu = part[:, 1], part[:, 2]
                yield (
                    f"minute {minute + 1}: host {host.min():.1f} to {host.max():.1f} MiB, "
                    f"GPU {gpu.min():.1f} to {gpu.max():.1f} MiB"
                )


def measure(
    address: str, pid: int, model: str, rows: int, clients: int, callers: int, seconds: float
) -> Memory:
    """Let clients loose, and print a line of the table."""
    load = ["--client", address, "--model", model, "--rows", str(rows)]
    load += ["--callers", str(callers), "--seconds", str(seconds)]
    command = [sys.executable, "-m", "load.gpu_serve", *load]
    memory, cpu_s = Memory(pid), process_tree.cpu_s(pid)
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(clients)
    ]
    while any(process.poll() is None for process in processes):
        memory.sample()
        time.sleep(SAMPLE_EVERY_S if seconds > 30 else 0.25)
    seen = [json.loads(process.communicate()[0]) for process in processes]
    cpu_s = process_tree.cpu_s(pid) - cpu_s
    counts = np.sum([one["counts"] for one in seen], axis=0)
    num_failed = sum(one["failed"] for one in seen)
    edges, total = np.array(seen[0]["edges"]), counts.sum()
    ends = edges[1:][np.searchsorted(np.cumsum(counts), [total * 0.5, total * 0.99])]
    print(
        f"| {rows} | {clients * callers} | {total / seconds:,.0f} | "
        f"{total * rows / seconds:,.0f} | {ends[0] * 1e3:.2f} | {ends[1] * 1e3:.2f} | "
        f"{cpu_s / total * 1e6:.0f} | {cpu_s / seconds:.1f} | {memory.busy_share:.0%} | "
        f"{num_failed} |",
        flush=True,
    )
    return memory


def config_of(model: str, slots: int, graphs: str, graph_rows: Sequence[int]) -> str:
    """config.pbtxt for so many slots, with usual graphs, those of these rows, or none."""
    specs = " ".join(f"graph_spec {{ batch_size: {rows} }}" for rows in graph_rows)
    policy = {"usual": "", "named": f"graphs: true {specs}", "off": "graphs: false"}[graphs]
    return (
        f'name: "{model}"\nbackend: "onnxruntime"\nmax_batch_size: 32\n'
        f"instance_group [ {{ count: {slots} kind: KIND_GPU }} ]\n"
        + (f"optimization {{ cuda {{ {policy} }} }}\n" if policy else "")
    )


def main(arguments: Sequence[str]) -> int:
    """Measure every combination; then soak."""
    parser = argparse.ArgumentParser(prog="load.gpu_serve")
    parser.add_argument("--model", default="resnet50_fp16_u8")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--transports", nargs="+", default=["grpcio", "native"])
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--graphs", choices=["usual", "named", "off"], default="usual")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--callers", type=int, default=6)
    parser.add_argument("--lonely", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--soak", type=float, default=0.0)
    parser.add_argument("--client", default="")
    parser.add_argument("--extra", nargs="*", default=[])
    chosen = parser.parse_args(arguments)
    if chosen.client:
        (rows,) = chosen.rows
        asyncio.run(client(chosen.client, chosen.model, rows, chosen.callers, chosen.seconds))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder), [chosen.model])
        config = config_of(chosen.model, chosen.slots, chosen.graphs, chosen.rows)
        (repository / chosen.model / "config.pbtxt").write_text(config)
        loads = [(1, 1)] if chosen.lonely else []
        loads.append((chosen.clients, chosen.callers))
        for transport in chosen.transports:
            began_at = time.monotonic()
            with served(repository, transport, chosen.extra) as (address, pid):
                load_s = time.monotonic() - began_at
                check(address, repository, chosen.model)
                memory = Memory(pid)
                memory.sample()
                print(
                    f"\n{transport}, {chosen.slots} slots, graphs {chosen.graphs}: ready after "
                    f"{load_s:.1f} s, {memory.samples[0][2]:,.0f} MiB of the GPU in use\n"
                )
                print(
                    "| rows | in flight | requests/s | rows/s | p50 ms | p99 ms | CPU us/request "
                    "| cores | GPU busy | failed |"
                )
                print("|" + " ---: |" * 10)
                for rows in chosen.rows:
                    for clients, callers in loads:
                        measure(address, pid, chosen.model, rows, clients, callers, chosen.seconds)
                if chosen.soak and transport == chosen.transports[-1]:
                    load = (chosen.clients, chosen.callers, chosen.soak)
                    memory = measure(address, pid, chosen.model, chosen.rows[-1], *load)
                    print("\n".join(memory.by_minute()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
