"""A whole server on a real GPU whose clients keep their tensors in its memory.

They ask by Triton's RPCs over a socket; `helpers/cuda_owner.py` has the memory, fills and compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cuda_owner import NO_HANDLES, OUT_AT, ROOM, SIZE, Owner
from helpers.cuda_shm_client import CudaShmClient, copied_bytes

pytestmark = pytest.mark.gpu


class Served:
    """A whole server on the GPU, and a client of it."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.client = CudaShmClient(server.address)

    def works_with(self, owner: Owner, seed: int, size: int = SIZE) -> bool:
        """Whether the answer to what an owner has put there is right."""
        owner.fill(seed, size)
        reply = self.client.infer(size).result()
        return owner.has(seed, size, OUT_AT) and list(reply.raw_output_contents) == [b""]

    @property
    def metrics(self) -> dict[str, float]:
        """Its figures."""
        return dict(self.server.metrics())


@pytest.fixture
def served(shm_server: Any) -> Iterator[Served]:
    """The server of this file, without a region."""
    served = Served(shm_server)
    yield served
    served.client.ask("CudaSharedMemoryUnregister")
    served.client.channel.close()
    assert not served.server.process.poll(), served.server.output()


@pytest.mark.parametrize("size", [SIZE, 100, 4])
def test_a_server_copies_within_the_gpu(served: Served, owner: Owner, size: int) -> None:
    """As the client sees it and as the metrics count it."""
    assert "cuda_shared_memory" in served.client.ask("ServerMetadata").extensions
    served.client.register("r", owner)
    before = served.metrics
    for seed in range(3):
        assert served.works_with(owner, seed, size)
    copied = copied_bytes(before, served.metrics)
    assert copied == {"read": 0, "written": 0, "direct": 6 * size}
    regions = served.client.ask("CudaSharedMemoryStatus").regions
    assert {name: (r.device_id, r.byte_size) for name, r in regions.items()} == {"r": (0, ROOM)}


def test_a_server_refuses_what_opens_nothing(served: Served, owner: Owner) -> None:
    """And goes on; it tells nobody what it was given."""
    client = served.client
    for handle in NO_HANDLES.values():
        fields = {"name": "r", "raw_handle": handle, "byte_size": 64}
        code, text = client.refusal("CudaSharedMemoryRegister", **fields)
        assert (code, handle.hex() in text) == ("INVALID_ARGUMENT", False)
    right = {"name": "r", "raw_handle": owner.handle}
    for wrong in ({"byte_size": 0}, {"byte_size": ROOM + 1}, {"byte_size": 8, "device_id": 99}):
        code, _ = client.refusal("CudaSharedMemoryRegister", **right, **wrong)
        assert code == "INVALID_ARGUMENT"
    code, _ = client.refusal("CudaSharedMemoryRegister", **right, byte_size=2**64 - 1)
    assert code == "RESOURCE_EXHAUSTED"
    client.register("r", owner)
    assert served.works_with(owner, 5)
    assert owner.handle.hex() not in served.server.output()


@pytest.mark.parametrize("how", ["end", "kill"])
def test_a_server_survives_owners(
    served: Served, owner: Owner, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of which one ends or is killed, registered and with requests under way."""
    with Owner(ROOM) as gone:
        served.client.register("r", gone)
        assert served.works_with(gone, 6)
        calls = [served.client.infer(SIZE) for _ in range(16)]
        getattr(gone, how)()
    codes = [call.code().name for call in calls]
    codes.append(served.client.infer(SIZE).code().name)
    with capsys.disabled():
        print(f"\na server after the owner's {how}: {sorted(set(codes))}")
    served.client.ask("CudaSharedMemoryUnregister", name="r")
    served.client.register("r", owner)
    assert served.works_with(owner, 7)
    assert served.client.ask("ServerReady").ready


def test_a_server_lets_go_after_the_last_use(served: Served, owner: Owner) -> None:
    """Unregistered under way and registered anew: each request that was let in is answered."""
    client, codes = served.client, set()
    for _ in range(5):
        client.register("r", owner)
        owner.fill(8, SIZE)
        calls = [client.infer(SIZE) for _ in range(16)]
        client.ask("CudaSharedMemoryUnregister", name="r")
        codes |= {call.code().name for call in calls}
        assert client.infer(SIZE).code().name == "NOT_FOUND"
    assert codes <= {"OK", "NOT_FOUND"}
    client.register("r", owner)
    assert served.works_with(owner, 9)
    served.server.wait_metrics(lambda seen: seen["headrace_regions"] == 1)
    assert served.metrics["headrace_regions"] == 1
