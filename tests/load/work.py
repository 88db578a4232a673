"""What the benchmark measures: pieces of work, who does them, and the figures of one run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from helpers.messages import first_output, infer, tensor
from load.models import CATALOGUE, DTYPES, Array, expected

H2LOAD, GRPC = "h2load", "grpc.aio"


@dataclass(frozen=True)
class Work:
    """Requests of one kind, and how many of them are in flight.

    Args:
        model: whose input is sent.
        connections: of the client.
        streams: calls in flight on each connection.
        client: h2load for what a Python client could not send fast enough, else grpc.aio.
        floors: the bare servers to compare with; see `targets.FLOORS`.
    """

    model: str
    connections: int
    streams: int
    client: str
    floors: tuple[str, ...]

    @property
    def callers(self) -> int:
        """Requests in flight."""
        return self.connections * self.streams

    @property
    def name(self) -> str:
        """Such as "mlp, 32 callers"."""
        return f"{self.model}, {self.callers} caller{'s' if self.callers > 1 else ''}"


ECHO = ("grpcio echo", "native echo", "grpcio parse")
COMPUTE = ("grpcio ort", "native ort")

WORKS = (
    Work("identity_64b", 4, 8, H2LOAD, ECHO),
    Work("identity_64b", 1, 1, H2LOAD, ECHO),
    Work("mlp", 4, 8, H2LOAD, COMPUTE),
    Work("mlp", 1, 1, H2LOAD, COMPUTE),
    Work("identity_150kb", 4, 2, GRPC, ECHO),
    Work("identity_600kb", 4, 2, GRPC, ECHO),
    Work("identity_6mb", 4, 2, GRPC, ECHO),
    Work("conv", 4, 2, GRPC, COMPUTE),
)
QUICK_WORKS = (
    Work("identity_64b", 2, 2, GRPC, ECHO),
    Work("mlp", 2, 2, GRPC, COMPUTE),
)


@dataclass(frozen=True)
class Figures:
    """What one run of some seconds gave.

    Args:
        rate: requests answered a second.
        p50_ms: median latency; p99_ms: of the slowest hundredth.
        cpu_s_per_1000: user and system seconds of the server's processes for 1,000 requests.
        failed: requests without their right answer.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_s_per_1000: float
    failed: int = 0


@cache
def sample(model: str) -> Array:
    """One row of input."""
    return CATALOGUE[model].sample()


@cache
def request(model: str) -> bytes:
    """A ModelInferRequest with one row, on the wire."""
    x, datatype = sample(model), CATALOGUE[model].datatype
    return infer(model, [tensor("x", datatype, x.shape)], [x.tobytes()])


def is_right(repository: Path, model: str, reply: bytes, *, is_echo: bool) -> bool:
    """Whether a reply is what ONNX Runtime, or an echo, answers to `request(model)`."""
    if is_echo:
        return reply == request(model)
    wanted = expected(repository, model, sample(model))
    got = first_output(reply, wanted.dtype)
    tolerance = 1e-4 if wanted.dtype.kind == "f" else 0
    return got.shape == wanted.shape and bool(abs(got - wanted).max() <= tolerance)


def numpy_type(datatype: str) -> type:
    """The numpy type of a wire datatype."""
    kind: type = DTYPES[datatype][1]
    return kind
