"""One wrong request of a table: what it is, its gRPC status and a piece of the text with it."""

from __future__ import annotations

from dataclasses import dataclass

SERVICE = "/inference.GRPCInferenceService/"
INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED = 3, 5, 8
UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 12, 13, 14


@dataclass(frozen=True)
class Bad:
    """One wrong request.

    Args:
        name: of the case.
        code: the gRPC status that it must get.
        text: a piece of the message that must come with it.
        message: on the wire.
        method: of the service, or a whole path.
    """

    name: str
    code: int
    text: str
    message: bytes
    method: str = "ModelInfer"

    @property
    def path(self) -> str:
        """As HTTP/2 has it."""
        return self.method if self.method.startswith("/") else SERVICE + self.method
