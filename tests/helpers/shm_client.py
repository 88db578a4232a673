"""Shared memory of one test, and requests that name it, by a plain client."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from helpers.messages import infer, tensor
from helpers.rpc_client import RpcClient, refused

PREFIX = "headrace_test_"
FOLDER = Path("/dev/shm")
Refusal = tuple[grpc.StatusCode, str]


class Memory:
    """One object of shared memory, gone at the end whatever happened to it.

    Attributes:
        key: Its name, that no other test has.
    """

    def __init__(self, size_bytes: int) -> None:
        self.key = f"{PREFIX}{uuid.uuid4().hex}"
        self.path = FOLDER / self.key
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.truncate(self.fd, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self.fd)

    def write(self, data: bytes, offset: int = 0) -> None:
        """Put bytes there, as a client does."""
        os.pwrite(self.fd, data, offset)

    def read(self, size_bytes: int, offset: int = 0) -> bytes:
        """What stands there."""
        return os.pread(self.fd, size_bytes, offset)


def register(client: RpcClient, name: str, key: str, size_bytes: int, offset: int = 0) -> None:
    """Register a region."""
    fields = {"name": name, "key": key, "byte_size": size_bytes, "offset": offset}
    client.ask("SystemSharedMemoryRegister", **fields)


def registered(client: RpcClient) -> list[str]:
    """The names of all regions."""
    return sorted(client.ask("SystemSharedMemoryStatus").regions)


def refusal(client: RpcClient, name: str, /, **fields: Any) -> Refusal:
    """How an RPC is refused."""
    try:
        client.ask(name, **fields)
    except grpc.RpcError as error:
        return refused(error)
    raise AssertionError(f"{name} was not refused")


def part(region: str, size_bytes: int, offset: int = 0) -> dict[str, str | int]:
    """The parameters of a tensor that lies in a region."""
    place: dict[str, str | int] = {
        "shared_memory_region": region,
        "shared_memory_byte_size": size_bytes,
    }
    return {**place, "shared_memory_offset": offset} if offset else place


def bytes_request(
    shape: Sequence[int],
    source: dict[str, str | int],
    wanted: dict[str, str | int] | None = None,
) -> bytes:
    """A request to `identity_uint8` from a region and, if wanted, into one."""
    inputs = [tensor("x", "UINT8", shape, parameters=source)]
    if wanted is None:
        return infer("identity_uint8", inputs)
    return infer("identity_uint8", inputs, outputs=["y"], output_parameters=wanted)
