"""Regions of clients' memory that a real GPU copies itself: pinned, read, written, let go of."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from helpers.cuda_core_rig import CudaRig

pytestmark = pytest.mark.gpu

SIZE = 6_220_800  # a full HD frame


@pytest.fixture
def core(needs_gpu: None) -> Iterator[CudaRig]:
    """Two slots on GPU 0, whose engine adds 1 to every byte."""
    from helpers.cuda_core_rig import CudaRig

    core = CudaRig(num_slots=2)
    yield core
    core.run()
    assert core.blocks.num_leased == 0
    core.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in shared memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


class Shared:
    """A file with a region for frames and one for answers, and requests between them."""

    def __init__(self, core: CudaRig, folder: Path) -> None:
        from headrace.regions.table import Quota, RegionTable
        from helpers.shared_files import SharedFiles

        self.core = core
        self.files = SharedFiles(folder)
        self.path = self.files.make("m", os.urandom(SIZE) + bytes(SIZE))
        self.table = RegionTable(self.files.open, Quota(), core.device)
        self.table.register("in", "m", 0, SIZE, 0)
        self.table.register("out", "m", SIZE, SIZE, 0)
        self.ends: list[Any] = []

    def submit(self) -> None:
        from headrace.regions.part import RegionPart
        from helpers.region_rig import region_request

        def on_end(_: object, outputs: Sequence[Any] | None, error: Exception | None) -> None:
            self.ends.append(error or [len(data) for _, data in outputs or ()])

        now = time.monotonic()
        request = region_request(
            self.table,
            {0: RegionPart("out", 0, SIZE)},
            self.core.line,
            self.core.layout_for(SIZE),
            RegionPart("in", 0, SIZE),
            now=now,
            on_end=on_end,
        )
        self.core.scheduler.submit(request, now)

    def close(self) -> None:
        self.table.close()
        assert self.table.num_regions == 0
        assert not [name for name in self.core.device.ledger.names() if name.startswith("pinned")]


def plus_one(data: bytes) -> bytes:
    return bytes((byte + 1) % 256 for byte in data)


def test_frames_go_from_region_to_region(core: CudaRig, folder: Path) -> None:
    """By the copy engines alone; each answer is of the frame that was there."""
    shared = Shared(core, folder)
    for _ in range(3):
        frame = os.urandom(SIZE)
        with shared.path.open("r+b") as file:
            file.write(frame)
        shared.submit()
        core.run()
        assert shared.path.read_bytes()[SIZE:] == plus_one(frame)
    assert shared.ends == [[SIZE]] * 3
    assert shared.table.num_direct_bytes == 6 * SIZE
    assert (shared.table.num_read_bytes, shared.table.num_written_bytes) == (0, 0)
    shared.close()


def test_a_file_that_is_cut_short_harms_nobody(core: CudaRig, folder: Path) -> None:
    """The GPU goes on with the pages that are pinned: an error for one request, and no signal."""
    shared = Shared(core, folder)
    for _ in range(4):
        shared.submit()
    os.truncate(shared.path, 0)
    core.run()
    assert all(isinstance(end, Exception) for end in shared.ends)
    assert shared.path.stat().st_size == 0
    shared.table.unregister("")
    shared.table.sweep(0)
    os.truncate(shared.path, 2 * SIZE)
    shared.table.register("in", "m", 0, SIZE, 0)
    shared.table.register("out", "m", SIZE, SIZE, 0)
    shared.submit()
    core.run()
    assert shared.path.read_bytes()[SIZE:] == bytes([1]) * SIZE
    shared.close()


def test_many_frames_in_flight(core: CudaRig, folder: Path) -> None:
    """More than there are lanes, unregistered while they are under way."""
    shared = Shared(core, folder)
    frame = shared.path.read_bytes()[:SIZE]
    for _ in range(5):
        shared.submit()
    core.scheduler.step(time.monotonic())
    shared.table.unregister("")
    shared.table.sweep(0)
    core.run()
    assert shared.ends == [[SIZE]] * 5
    assert shared.path.read_bytes()[SIZE:] == plus_one(frame)
    shared.close()
