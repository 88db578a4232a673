"""Shared memory over real sockets: what callers may name, whose it is, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import grpc
import pytest

from helpers.messages import infer, tensor
from helpers.rpc_client import RpcClient, told
from helpers.server import Server, ServerPool
from helpers.shm_client import (
    FOLDER,
    PREFIX,
    Memory,
    bytes_request,
    part,
    refusal,
    register,
    registered,
)

Code = grpc.StatusCode
SIZE = 100_000
MAX_REGIONS, MAX_BYTES = 6, 1_000_000
LONG_ROUNDS = 5000  # about a second
LEASE_S = 1

OWNER = """
import mmap, os, sys
from helpers.rpc_client import RpcClient
from helpers.shm_client import register
client, memories = RpcClient(sys.argv[1]), []
for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.truncate(fd, 4096)
    memories.append(mmap.mmap(fd, 4096))
    os.close(fd)
    register(client, path[-5:], os.path.basename(path), 4096)
os.unlink(path)
print("registered", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(
    transport: str, servers: ServerPool, quick_repository: Path, slow_repository: Path
) -> Server:
    """A server that takes a few regions under the tests' prefix."""
    repositories = ("--model-repository", quick_repository, "--model-repository", slow_repository)
    bounds = (
        "--client-shm-max-regions",
        str(MAX_REGIONS),
        "--client-shm-max-bytes",
        str(MAX_BYTES),
    )
    lease = ("--client-shm-lease-secs", str(LEASE_S), "--client-shm-key-prefix", PREFIX)
    arguments = (*repositories, "--allow-client-shm", *bounds, *lease)
    return servers.get(*arguments, "--transport", transport)


@pytest.fixture
def client(server: Server) -> Iterator[RpcClient]:
    with RpcClient(server.address) as made:
        made.ask("SystemSharedMemoryUnregister")
        yield made
        made.ask("SystemSharedMemoryUnregister")
        assert registered(made) == []


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(2 * SIZE) as made:
        yield made


def frame(value: int) -> bytes:
    return bytes([value]) * SIZE


def ask(client: RpcClient, wanted: str | None = "out", size: int = SIZE) -> Any:
    """A frame from the region `in`."""
    to = None if wanted is None else part(wanted, size)
    return client.start(bytes_request((1, size), part("in", size), to))


def test_a_frame_goes_in_and_out(client: RpcClient, server: Server, memory: Memory) -> None:
    """Copied once each way, as the server counts; again and again, and the reply is small."""
    before = server.metrics()
    register(client, "in", memory.key, SIZE)
    register(client, "out", memory.key, SIZE, SIZE)
    for value in (1, 2, 3):
        memory.write(frame(value))
        reply = ask(client).result()
        assert memory.read(SIZE, SIZE) == frame(value)
        assert reply.ByteSize() < 200
    after = server.metrics()
    assert (after["headrace_regions"], after["headrace_regions_bytes"]) == (2, 2 * SIZE)
    for name in ("headrace_region_read_bytes_total", "headrace_region_written_bytes_total"):
        assert after[name] - before[name] == 3 * SIZE


@pytest.mark.parametrize(
    "key", ["", "/", "..", "../etc/passwd", "/../shm/x", "a/b", "x" * 300, "other", "sem.x", "\n"]
)
def test_keys_that_are_not_for_clients(client: RpcClient, server: Server, key: str) -> None:
    """Nothing is opened, and neither answers nor the log repeat the key."""
    code, text = refusal(client, "SystemSharedMemoryRegister", name="r", key=key, byte_size=8)
    assert code is Code.INVALID_ARGUMENT
    assert len(key) < 3 or (key not in text and key not in server.output())
    assert registered(client) == []


def test_what_is_no_plain_memory(client: RpcClient, memory: Memory) -> None:
    """A link, a folder, a pipe and nothing at all are refused by one and the same text."""
    names = [f"{memory.key}_{kind}" for kind in ("link", "folder", "pipe", "nothing")]
    link, folder, pipe, _ = (FOLDER / name for name in names)
    link.symlink_to(memory.path)
    folder.mkdir()
    os.mkfifo(pipe)
    try:
        fields = {"name": "r", "byte_size": 8}
        told = {refusal(client, "SystemSharedMemoryRegister", key=n, **fields) for n in names}
    finally:
        link.unlink()
        folder.rmdir()
        pipe.unlink()
    ((code, text),) = told
    assert (code, memory.key in text) == (Code.INVALID_ARGUMENT, False)


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 2 * SIZE + 1), (2 * SIZE, 1), (2**64 - 1, 1), (2**64 - 8, 16), (2**63, 0), (0, 0)],
)
def test_regions_that_lie_elsewhere(
    client: RpcClient, memory: Memory, offset: int, size: int
) -> None:
    """No sum wraps."""
    fields = {"name": "r", "key": memory.key, "offset": offset, "byte_size": size}
    code, _ = refusal(client, "SystemSharedMemoryRegister", **fields)
    assert code is Code.INVALID_ARGUMENT
    assert registered(client) == []


@pytest.mark.parametrize(
    ("offset", "size"), [(1, SIZE), (2**63 - 1, SIZE), (-1, SIZE), (-SIZE, SIZE), (0, -SIZE)]
)
def test_tensors_that_lie_elsewhere(
    client: RpcClient, memory: Memory, offset: int, size: int
) -> None:
    """Behind the region's end, before its begin: refused each way, and nothing is written."""
    register(client, "in", memory.key, SIZE)
    register(client, "out", memory.key, SIZE, SIZE)
    memory.write(frame(1))
    wrong, right = part("in", size, offset), part("in", SIZE)
    for source, wanted in ((wrong, part("out", SIZE)), (right, part("out", size, offset))):
        code, _ = told(client.start(bytes_request((1, SIZE), source, wanted)))
        assert code is Code.INVALID_ARGUMENT
    assert memory.read(SIZE, SIZE) == bytes(SIZE)


def test_the_quota(client: RpcClient, memory: Memory) -> None:
    """Counts regions and bytes; the text names no key."""
    for index in range(MAX_REGIONS):
        register(client, str(index), memory.key, 8)
    for name, size in (("more", 8), ("large", MAX_BYTES)):
        fields = {"name": name, "key": memory.key, "byte_size": size}
        code, text = refusal(client, "SystemSharedMemoryRegister", **fields)
        assert (code, memory.key in text) == (Code.RESOURCE_EXHAUSTED, False)
        client.ask("SystemSharedMemoryUnregister", name="0")


def test_a_name_is_taken_once(client: RpcClient, memory: Memory) -> None:
    """By whomever; unregistering an unknown one is no error."""
    register(client, "r", memory.key, 8)
    fields = {"name": "r", "key": memory.key, "byte_size": 8}
    code, text = refusal(client, "SystemSharedMemoryRegister", **fields)
    assert (code, memory.key in text) == (Code.ALREADY_EXISTS, False)
    client.ask("SystemSharedMemoryUnregister", name="nothing")
    assert registered(client) == ["r"]


def test_memory_that_is_cut_short(client: RpcClient, memory: Memory) -> None:
    """The request fails, the server lives, and what is whole again works again."""
    register(client, "in", memory.key, SIZE)
    register(client, "out", memory.key, SIZE, SIZE)
    os.truncate(memory.path, SIZE + 10)
    code, text = told(ask(client))
    assert (code, "'out': its memory has become shorter" in text) == (Code.INVALID_ARGUMENT, True)
    os.truncate(memory.path, 10)
    code, text = told(ask(client))
    assert (code, "'in': its memory has become shorter" in text) == (Code.INVALID_ARGUMENT, True)
    assert memory.path.stat().st_size == 10, "nothing was written"
    os.truncate(memory.path, 2 * SIZE)
    assert ask(client).result().outputs[0].name == "y"


def test_unregistered_and_replaced_in_flight(
    client: RpcClient, server: Server, memory: Memory
) -> None:
    """A request writes into the region that it was given, not into its namesake."""
    register(client, "in", memory.key, SIZE)
    register(client, "out", memory.key, SIZE, SIZE)
    inputs = [
        tensor("x", "FP32", [2], parameters=part("in", 8)),
        tensor("rounds", "INT64", [1]),
    ]
    memory.write(b"\0\0\x80?" * 2)
    raw = [LONG_ROUNDS.to_bytes(8, "little")]
    message = infer("slow", inputs, raw, outputs=["y"], output_parameters=part("out", 8))
    with Memory(SIZE) as other:
        call = client.start(message)
        server.wait_metrics(lambda seen: seen["headrace_slots_busy"] > 0)
        client.ask("SystemSharedMemoryUnregister")
        register(client, "out", other.key, SIZE)
        is_early = memory.read(8, SIZE) == bytes(8)
        call.result()
        assert is_early, "it had ended before the region was replaced"
        assert memory.read(8, SIZE) == b"\0\0\x80?" * 2
        assert other.read(SIZE) == bytes(SIZE)
        seen = server.wait_metrics(lambda seen: seen["headrace_regions"] == 1)
        assert seen["headrace_regions"] == 1, "the two that were in use are gone"


def test_memory_of_a_gpu_where_there_is_none(client: RpcClient) -> None:
    """Refused as what is not offered, and not promised; to list and forget it goes well."""
    fields = {"name": "c", "raw_handle": bytes(64), "device_id": 0, "byte_size": 64}
    code, text = refusal(client, "CudaSharedMemoryRegister", **fields)
    assert (code, "system shared memory alone" in text) == (Code.UNIMPLEMENTED, True)
    assert not client.ask("CudaSharedMemoryStatus").regions
    code, _ = refusal(client, "CudaSharedMemoryStatus", name="c")
    assert code is Code.NOT_FOUND
    client.ask("CudaSharedMemoryUnregister", name="c")
    extensions = client.ask("ServerMetadata").extensions
    assert ("system_shared_memory" in extensions, "cuda_shared_memory" in extensions) == (
        True,
        False,
    )


def test_an_owner_that_dies(client: RpcClient, server: Server, memory: Memory) -> None:
    """Its regions stay while it lives, used or not, and go when it was killed."""
    paths = [FOLDER / f"{memory.key}_{name}" for name in ("named", "loose")]
    command = [sys.executable, "-c", OWNER, server.address, *map(str, paths)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    try:
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"registered\n"
            sleep(LEASE_S + 0.3)  # and a look
            assert registered(client) == ["loose", "named"]
            owner.send_signal(signal.SIGKILL)
            owner.wait(10)
        give_up_at = monotonic() + 10
        while registered(client) and monotonic() < give_up_at:
            sleep(0.05)
        assert registered(client) == []
        assert server.metrics()["headrace_regions"] == 0
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
