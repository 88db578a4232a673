"""Device memory of another process, on a real GPU: opened by its handle, and copied within the GPU.

The other process allocates, exports, fills and compares (`helpers/cuda_owner.py`). What becomes of
memory whose owner has ended is for the driver to say: the tests print it, and hold that the server
goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from helpers.cuda_owner import NO_HANDLES, OUT_AT, ROOM, SIZE, WORKS, Owner

if TYPE_CHECKING:
    from headrace.errors import HeadraceError
    from helpers.cuda_core_rig import CudaRig

pytestmark = pytest.mark.gpu


@pytest.fixture
def core(needs_gpu: None) -> Iterator[CudaRig]:
    """Two slots on GPU 0, whose engine adds 1 to every byte."""
    from helpers.cuda_core_rig import CudaRig

    core = CudaRig(num_slots=2)
    yield core
    core.run()
    assert core.blocks.num_leased == 0
    core.close()


class Shared:
    """The core, with a region over memory of another process, and requests within it."""

    def __init__(self, core: CudaRig) -> None:
        from headrace.regions.table import Quota, RegionTable

        def no_file(key: str) -> Any:
            raise AssertionError(key)

        self.core = core
        self.table = RegionTable(no_file, Quota(), core.device)
        self.ends: list[Any] = []

    def register(self, name: str, owner: Owner, size: int = ROOM) -> None:
        self.table.register_shared(name, owner.handle, size, 0)

    def refused(self, name: str, handle: bytes, size: int) -> HeadraceError:
        """How a region is refused."""
        from headrace.errors import RequestError

        with pytest.raises(RequestError) as caught:
            self.table.register_shared(name, handle, size, 0)
        assert handle.hex() not in str(caught.value)
        return caught.value

    def submit(self, size: int, source: str = "r", target: str = "r") -> None:
        """A request of so many bytes at 0, whose answer is wanted at OUT_AT."""
        from headrace.regions.part import RegionPart
        from helpers.region_rig import region_request

        def on_end(_: object, outputs: Sequence[Any] | None, error: Exception | None) -> None:
            self.ends.append(error or [len(data) for _, data in outputs or ()])

        now = time.monotonic()
        request = region_request(
            self.table,
            {0: RegionPart(target, OUT_AT, size)},
            self.core.line,
            self.core.layout_for(size),
            RegionPart(source, 0, size),
            now=now,
            on_end=on_end,
        )
        self.core.scheduler.submit(request, now)

    def close(self) -> None:
        self.table.close()
        assert self.table.num_regions == 0
        assert not [name for name in self.core.device.ledger.names() if name.startswith("shared")]
        self.core.device.check()


@pytest.mark.parametrize("size", [SIZE, 24 << 10, 100, 4, 1])
def test_tensors_go_from_process_to_process(core: CudaRig, owner: Owner, size: int) -> None:
    """Within the GPU alone, whatever their size; each answer is of what was there."""
    shared = Shared(core)
    shared.register("r", owner)
    for seed in range(3):
        owner.fill(seed, size)
        shared.submit(size)
        core.run()
        assert owner.has(seed, size, OUT_AT, more=1)
    assert shared.ends == [[size]] * 3
    assert shared.table.num_direct_bytes == 6 * size
    assert (shared.table.num_read_bytes, shared.table.num_written_bytes) == (0, 0)
    shared.close()


def test_two_names_for_one_handle(core: CudaRig, owner: Owner) -> None:
    """One goes, the other one stays; and it may come again. CUDA counts what is open."""
    shared = Shared(core)
    for seed in range(3):
        shared.register("a", owner)
        shared.register("b", owner)
        for target in ("b", "a"):
            owner.fill(seed, SIZE)
            shared.submit(SIZE, "a", target)
            core.run()
            assert owner.has(seed, SIZE, OUT_AT, more=1)
        shared.table.unregister("a", on_device=True)
        shared.table.sweep(0)
        owner.fill(seed + 10, SIZE)
        shared.submit(SIZE, "b", "b")
        core.run()
        assert owner.has(seed + 10, SIZE, OUT_AT, more=1)
        shared.table.unregister("b", on_device=True)
        shared.table.sweep(0)
    shared.close()


def test_two_owners_at_once(core: CudaRig, owner: Owner) -> None:
    """From the memory of the one into that of the other."""
    shared = Shared(core)
    with Owner(ROOM) as other:
        shared.register("a", owner)
        shared.register("b", other)
        owner.fill(1, SIZE)
        shared.submit(SIZE, "a", "b")
        core.run()
        assert other.has(1, SIZE, OUT_AT, more=1)
        shared.close()


@pytest.mark.parametrize("size", [ROOM + 1, 2 * ROOM, 1 << 29])
def test_a_region_lies_within_the_allocation(core: CudaRig, owner: Owner, size: int) -> None:
    """The driver knows where it ends; nothing stays open, and the next one is taken."""
    shared = Shared(core)
    assert f"which has {ROOM}" in str(shared.refused("r", owner.handle, size))
    shared.register("r", owner)
    shared.close()


def test_a_small_allocation(core: CudaRig, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a piece of a block of 2 MiB; how much of it a handle opens is for the driver to say."""
    from headrace.device.cudart import CudartDevice

    assert isinstance(core.device, CudartDevice)
    with Owner(100) as owner:
        opened = core.device.open_shared(owner.handle)
        with capsys.disabled():
            print(f"\n100 bytes of cudaMalloc are opened as {opened.size_bytes}")
        assert 100 <= opened.size_bytes <= 2 << 20
        opened.close()


@pytest.mark.parametrize("what", NO_HANDLES)
def test_what_is_no_handle_opens_nothing(needs_gpu: None, what: str) -> None:
    """Tried in a process of its own, in case that the driver falls over it."""
    with Owner() as other:
        answer = other.ask("open", NO_HANDLES[what].hex())
    assert answer.startswith("refused: ")
    assert answer.endswith(WORKS)


def test_a_handle_that_was_changed_harms_nobody(owner: Owner) -> None:
    """In one bit, each of its bytes once: refused, or it opens the same."""
    with Owner() as other:
        for place in range(64):
            changed = bytearray(owner.handle)
            changed[place] ^= 1
            answer = other.ask("open", changed.hex())
            assert answer.endswith(WORKS)
            assert not answer.startswith("sticky")
        assert other.ask("open", owner.handle.hex()) == f"{ROOM} bytes{WORKS}"


def test_a_handle_of_the_process_itself_is_refused(owner: Owner) -> None:
    """CUDA opens those of others alone."""
    answer = owner.ask("own")
    assert answer.startswith("refused: ")
    assert answer.endswith(WORKS)


@pytest.mark.parametrize("how", ["end", "kill"])
def test_an_owner_that_is_gone_shares_nothing_new(needs_gpu: None, how: str) -> None:
    """Its handle opens nothing any more."""
    with Owner(ROOM) as gone, Owner() as other:
        getattr(gone, how)()
        answer = other.ask("open", gone.handle.hex())
    assert answer.startswith("refused: ")
    assert answer.endswith(WORKS)


@pytest.mark.parametrize("how", ["end", "kill"])
def test_an_owner_that_goes_while_it_is_registered(
    core: CudaRig, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each request ends, that memory is free after the region, and the next owner is served."""
    from cuda.bindings import runtime as rt

    from helpers.cuda_checked import checked

    shared = Shared(core)
    with Owner(ROOM) as gone:
        shared.register("r", gone)
        gone.fill(1, SIZE)
        for _ in range(4):
            shared.submit(SIZE)
        core.scheduler.step(time.monotonic())
        getattr(gone, how)()
    core.run()
    shared.submit(SIZE)
    core.run()
    with capsys.disabled():
        print(f"\nafter the owner's {how}: {shared.ends}")
    assert len(shared.ends) == 5
    core.device.check()
    held, _ = checked(rt.cudaMemGetInfo())
    shared.table.unregister("", on_device=True)
    shared.table.sweep(0)
    free, _ = checked(rt.cudaMemGetInfo())
    assert free - held >= ROOM
    with Owner(ROOM) as owner:
        shared.register("r", owner)
        owner.fill(2, SIZE)
        shared.submit(SIZE)
        core.run()
        assert owner.has(2, SIZE, OUT_AT, more=1)
        shared.close()


def test_unregistered_while_many_are_in_flight(core: CudaRig, owner: Owner) -> None:
    """More than there are lanes: it is closed after the last of them."""
    shared = Shared(core)
    shared.register("r", owner)
    owner.fill(3, SIZE)
    for _ in range(5):
        shared.submit(SIZE)
    core.scheduler.step(time.monotonic())
    shared.table.unregister("", on_device=True)
    shared.table.sweep(0)
    assert [name for name in core.device.ledger.names() if name.startswith("shared")]
    core.run()
    assert shared.ends == [[SIZE]] * 5
    assert owner.has(3, SIZE, OUT_AT, more=1)
    shared.table.sweep(0)
    shared.close()
