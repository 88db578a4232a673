"""What elements of BYTES tensors cost, and how long they keep others waiting: `-m load.bytes_cost`.

The model passes its strings on. In one process without a transport, prints for strings of several
kinds the nanoseconds of CPU an element that taking the request in costs the thread which all
requests share, with raw and with typed tensors, and those of the whole; then the longest time that
this thread could not do anything else, as it was and as one that wants to run every millisecond
saw it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from onnx import helper

from headrace.memory import keep_large_blocks
from headrace.rpc.status import Status
from headrace_proto.tensors import encode_bytes
from headrace_proto.v1 import inference_pb2 as pb
from helpers.onnx_models import STRING, model, port, save
from load.core_cost import Sink, open_core

KINDS = {"empty": "", "ascii": "hello", "utf-8": "grüße", "60 bytes": "x" * 60}
NUM_STRINGS = 1 << 17  # the default of --max-strings
REPEATS = 5
TICK_S = 1e-3


class Awaited(Sink):
    """A call that knows whether it was answered."""

    is_answered = False

    def respond(self, reply: bytes) -> None:
        """Take the reply."""
        self.is_answered = True

    def fail(self, status: Status) -> None:
        """Stop: nothing here may fail."""
        raise AssertionError(status)


def write(folder: Path) -> Path:
    """Write a repository with a model of strings."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    built = model(nodes, [port("x", STRING, [1, "n"])], [port("y", STRING, [1, "n"])])
    save(built, folder / "m/1/model.onnx")
    return folder


def message_of(text: str, count: int, *, is_typed: bool) -> bytes:
    """Return a request of so many equal strings."""
    request = pb.ModelInferRequest(model_name="m")
    tensor = request.inputs.add(name="x", datatype="BYTES", shape=[1, count])
    if is_typed:
        tensor.contents.bytes_contents.extend([text.encode()] * count)
    else:
        request.raw_input_contents.append(encode_bytes([text] * count))
    return request.SerializeToString()


class Asker:
    """A server's core, asked one message at a time."""

    def __init__(self, folder: Path) -> None:
        self.infer, self.link = open_core(write(folder))

    def ask(self, message: bytes) -> tuple[float, float, float, float]:
        """Serve a message.

        Returns:
            Seconds of CPU to take it in, and in all; the longest turn of this thread, and its
            longest wait for what it wanted to do next.
        """
        call, longest_s, late_s = Awaited(), 0.0, 0.0
        cpu_at, thread_at, at = time.process_time(), time.thread_time(), time.perf_counter()
        self.infer.accept(message, call, received_at=time.monotonic(), deadline=None)
        taken_s, longest_s = time.thread_time() - thread_at, time.perf_counter() - at
        while not call.is_answered:
            at = time.perf_counter()
            time.sleep(TICK_S)
            late_s = max(late_s, time.perf_counter() - at - TICK_S)
            at = time.perf_counter()
            self.link.step(time.monotonic())
            longest_s = max(longest_s, time.perf_counter() - at)
        return taken_s, time.process_time() - cpu_at, longest_s, late_s


def main(count: int = NUM_STRINGS) -> None:
    """Measure and print."""
    keep_large_blocks()
    print(f"{count:,} strings{'taken in ns':>18} {'in all ns':>12} {'turn ms':>10} {'late ms':>10}")
    with tempfile.TemporaryDirectory() as folder:
        asker = Asker(Path(folder))
        for name, text in KINDS.items():
            for is_typed in (False, True):
                message = message_of(text, count, is_typed=is_typed)
                seen = [asker.ask(message) for _ in range(REPEATS)]
                taken_s, all_s, longest_s, late_s = map(min, zip(*seen, strict=True))
                label = f"{name}, {'typed' if is_typed else 'raw'}"
                costs = f"{taken_s / count * 1e9:>11.0f} {all_s / count * 1e9:>12.0f}"
                print(f"{label:<20} {costs} {longest_s * 1e3:>10.1f} {late_s * 1e3:>10.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
