"""How long requests of very many parts keep all others waiting: `-m load.many_parts [MEBIBYTES]`.

In one process without a transport, prints for messages of 64 MiB that are nothing but small parts
of one kind, and for two that are one large tensor, what the thread that all requests share takes
for them, in milliseconds of CPU, and how they end. All but those two should be refused soon.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from headrace.rpc.status import Status
from headrace_proto.wire import delimited
from load.core_cost import Sink, open_core
from load.models import write_repository

MEBIBYTES = 64
SHOWN_CHARS = 60


class Refused(Sink):
    """A call that knows how it ended."""

    text = "taken"

    def fail(self, status: Status) -> None:
        """Keep the text."""
        self.text = f"{status.code.name}: {status.text}"


def of(number: int, content: bytes) -> bytes:
    """Return a field."""
    return delimited(number, len(content)) + content


def messages(size_bytes: int) -> dict[str, bytes]:
    """Return the messages by what they consist of."""
    pairs, model = size_bytes // 2, of(1, b"mlp")

    def with_input(more: bytes) -> bytes:
        tensor = of(1, b"x") + of(2, b"FP32") + of(3, b"\x01\x40") + more
        return model + of(5, tensor)

    return {
        "raw tensors": model + b"\x3a\x00" * pairs,
        "raw tensors, oddly": b"\x80\x01\x01" + model + b"\x3a\x00" * pairs,
        "inputs": model + b"\x2a\x00" * pairs,
        "parameters": model + b"\x22\x00" * pairs,
        "an input's parameters": with_input(b"\x22\x00" * pairs),
        "dimensions": with_input(of(3, b"\x01" * size_bytes)),
        "typed strings": with_input(of(5, b"\x42\x00" * pairs)),
        "typed numbers": with_input(of(5, of(2, b"\x01" * size_bytes))),
        "one typed tensor of floats": with_input(of(5, of(6, bytes(size_bytes)))),
        "one raw tensor": with_input(b"") + of(7, bytes(size_bytes)),
    }


def main(mebibytes: int = MEBIBYTES) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        infer, _ = open_core(write_repository(Path(folder), ["mlp"]))
        for what, message in messages(mebibytes << 20).items():
            call, began_s = Refused(), time.thread_time()
            infer.accept(message, call, received_at=time.monotonic(), deadline=None)
            took_s = time.thread_time() - began_s
            print(f"{what:<28} {took_s * 1e3:>8.1f} ms  {call.text[:SHOWN_CHARS]}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
