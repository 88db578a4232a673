"""What the server's own Python costs a request, with no transport: `-m load.core_cost [MODEL]`.

Messages go through the same code as in a server (scan, checks, block, scheduler, run, reply,
metrics), in turns of 1, 8 and 32, as the native transport hands them over. Prints microseconds a
request, the runtime's own beside them, and the functions that the time goes to.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headrace.catalog import ModelCatalog
from headrace.device.host import HostDevice
from headrace.engines.repository import find_models
from headrace.link.local import LocalLink
from headrace.loader import Loader, LoadOptions, load_all
from headrace.metrics import Metrics
from headrace.response_cache.store import ResponseCache
from headrace.rpc.infer import InferService
from headrace.rpc.prepare import Limits
from headrace.rpc.status import Status
from headrace.rpc.wishes import Metadata
from headrace.scheduling.admission import Admission
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import Poller
from headrace_proto.v1 import inference_pb2 as pb
from load.models import model_path, session, write_repository
from load.work import sample

BEST_OF = 12  # the least of so many: what other programs take is not the server's
PER_TIMING = 2000
SHOWN = 25


class Sink:
    """A call whose answer goes nowhere."""

    def metadata(self) -> Metadata:
        """Return what a client of grpcio sends."""
        return (("user-agent", "grpc-python/1.0"),)

    def respond(self, reply: bytes) -> None:
        """Take the reply."""

    def fail(self, status: Status) -> None:
        """Stop: nothing here may fail."""
        raise AssertionError(status)


def open_core(
    repository: Path, cache: ResponseCache | None = None
) -> tuple[InferService, LocalLink]:
    """Open everything but a transport."""
    device, metrics, catalog = HostDevice(), Metrics(), ModelCatalog()
    blocks = BlockPool(device, 256 << 20)
    options, clock = LoadOptions(), time.monotonic
    loader = Loader(device, blocks, metrics, options, clock=clock, cache=cache, catalog=catalog)
    load_all(find_models([repository]), loader, catalog)
    admission = Admission(blocks, max_waiting_bytes=1 << 30)
    scheduler = Scheduler(blocks, Poller(), admission, clock=time.monotonic)
    for model in catalog.models():
        scheduler.add_line(model.line)
    link = LocalLink(scheduler)
    limits = Limits()
    return (
        InferService(catalog, link, limits, clock=time.monotonic, max_request_bytes=1 << 30),
        link,
    )


def message_of(model: str) -> bytes:
    """Return a request as a client sends it."""
    x = sample(model)
    request = pb.ModelInferRequest(model_name=model, id="1")
    datatype = {"float32": "FP32", "uint8": "UINT8"}[str(x.dtype)]
    request.inputs.add(name="x", datatype=datatype, shape=x.shape)
    request.raw_input_contents.append(x.tobytes())
    return request.SerializeToString()


def best_us(call: Callable[[], None], times: int) -> float:
    """Return the microseconds of a call, the least of several measurements."""
    best_s = float("inf")
    for _ in range(BEST_OF):
        started = time.perf_counter()
        for _ in range(times):
            call()
        best_s = min(best_s, (time.perf_counter() - started) / times)
    return best_s * 1e6


def main(model: str = "mlp") -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder), [model])
        infer, link = open_core(repository)
        message, x, alone = message_of(model), sample(model), session(model_path(repository, model))

        def turn(count: int) -> None:
            now = time.monotonic()
            for _ in range(count):
                infer.accept(message, Sink(), received_at=now, deadline=None)
            while link.step(time.monotonic()):
                pass

        print(f"onnxruntime alone  {best_us(lambda: alone.run(None, {'x': x}), PER_TIMING):.1f} us")
        for count in (1, 8, 32):
            us = best_us(lambda count=count: turn(count), PER_TIMING // count) / count  # type: ignore[misc]
            print(f"{count:2} in a turn       {us:.1f} us a request")
        profile = cProfile.Profile()
        with profile:
            for _ in range(PER_TIMING):
                turn(8)
        pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)


if __name__ == "__main__":
    main(*sys.argv[1:])
