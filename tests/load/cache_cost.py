"""What the response cache costs and saves a request, with no transport: `-m load.cache_cost`.

The models are identities of so many bytes, so none is cheaper, and run inline. Prints microseconds
of CPU a request, the least of many: without a cache; found in it; looked up in vain, run and kept;
the digest alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import onnx

from headrace.link.local import LocalLink
from headrace.memory import keep_large_blocks
from headrace.response_cache.store import ResponseCache
from headrace.rpc.infer import InferService
from headrace_proto.v1 import inference_pb2 as pb
from helpers import onnx_models
from load.core_cost import BEST_OF, Sink, open_core
from load.graphs import elementwise

SIZES_BYTES = (256, 6_000, 150_528, 602_112)  # larger ones do not run inline
CACHE_BYTES = 256 << 20
SECONDS = 0.02  # of one timing, about
MARK_BYTES = 8  # what makes a message another


def cpu_us(call: Callable[[], object], times: int) -> float:
    """Return the microseconds of CPU of a call, the least of several measurements."""
    best_s = float("inf")
    for _ in range(BEST_OF):
        started_s = time.process_time()
        for _ in range(times):
            call()
        best_s = min(best_s, (time.process_time() - started_s) / times)
    return best_s * 1e6


def message_of(size_bytes: int) -> bytearray:
    """Return a request whose last bytes may be changed."""
    request = pb.ModelInferRequest(model_name=f"of_{size_bytes}")
    request.inputs.add(name="x", datatype="UINT8", shape=[1, size_bytes])
    request.raw_input_contents.append(np.arange(size_bytes, dtype=np.uint8).tobytes())
    return bytearray(request.SerializeToString())


def asker(infer: InferService, link: LocalLink) -> Callable[[bytes], None]:
    """Return what serves one message to its end."""

    def ask(message: bytes) -> None:
        infer.accept(message, Sink(), received_at=time.monotonic(), deadline=None)
        while link.step(time.monotonic()):
            pass

    return ask


def row_of(size_bytes: int, plain: Callable[[bytes], None], cached: Callable[[bytes], None]) -> str:
    """Measure one size."""
    draft, numbers = message_of(size_bytes), count()
    same = bytes(draft)

    def another() -> bytes:
        draft[-MARK_BYTES:] = next(numbers).to_bytes(MARK_BYTES, "little")
        return bytes(draft)

    times = max(3, int(SECONDS / (10e-6 + size_bytes * 1.5e-9)))
    cached(same)
    making_us = cpu_us(another, times)
    figures_us = [
        cpu_us(lambda: plain(same), times),
        cpu_us(lambda: cached(same), times),
        cpu_us(lambda: cached(another()), times) - making_us,
    ]
    digest, tensor = ResponseCache(1).open().digest("m"), memoryview(same)[-size_bytes:]
    figures_us.append(cpu_us(lambda: digest.of([tensor]), times))
    return f"{size_bytes:>10,} " + " ".join(f"{figure:>12.1f}" for figure in figures_us)


def write_models(folder: Path, config: str) -> Path:
    """Write a model for each size; return the folder."""
    for size_bytes in SIZES_BYTES:
        name = f"of_{size_bytes}"
        rows = ("x", "y", onnx.TensorProto.UINT8, ("batch", size_bytes))
        onnx_models.save(elementwise(name, "Identity", [rows]), folder / name / "1" / "model.onnx")
        (folder / name / "config.pbtxt").write_text(f"max_batch_size: 1 {config}")
    return folder


def main() -> None:
    """Measure and print."""
    keep_large_blocks()
    with tempfile.TemporaryDirectory() as name:
        plain = asker(*open_core(write_models(Path(name), "")))
        repository = write_models(Path(name), "response_cache { enable: true }")
        cached = asker(*open_core(repository, ResponseCache(CACHE_BYTES)))
        print(
            f"{'bytes':>10} {'no cache us':>12} {'found us':>12} {'kept us':>12} {'digest us':>12}"
        )
        for size_bytes in SIZES_BYTES:
            print(row_of(size_bytes, plain, cached))


if __name__ == "__main__":
    main()
