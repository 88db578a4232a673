"""Plans reloaded on a virtual GPU: device memory, pinned blocks and graphs come and go in whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.catalog import ModelCatalog
from headrace.control.room import NoRoomError
from headrace.control.shelf import Shelf, Taken
from headrace.control.swap import Swap
from headrace.control.uploads import UploadBounds, Uploads
from headrace.control.versions import VersionLoader
from headrace.errors import RequestError
from headrace.link.local import LocalLink
from headrace.loader import Loader, LoadOptions
from headrace.model import ServedModel
from headrace.slots.blocks import BlockPool
from helpers.sim_served import SimServed
from helpers.swap_rig import Watch

GRAPHS = "optimization { cuda { graphs: true graph_spec { batch_size: 1 } } }"


class PlanRig(SimServed):
    """A served plan, and what loads others in its place."""

    def begin(self) -> ServedModel:
        """Serve the first."""
        model = self.load(config=GRAPHS)
        self.catalog = ModelCatalog()
        self.catalog.add(model)
        self.swap = Swap(
            *(self.catalog, LocalLink(self.scheduler), self.metrics, Watch()),
            grace_s=10.0,
            on_loop=lambda work: work(),
            wait=lambda _: self.turn(),
        )
        self.loader = VersionLoader(
            *(self.device, self.catalog, self.metrics, self.make_loader),
            blocks_bytes=self.blocks.budget_bytes,
            is_leaving=bool,
        )
        uploads = Uploads(UploadBounds())
        self.shelf = Shelf([self.folder], [], uploads, compute_capability="8.6")
        return model

    def make_loader(self, blocks: BlockPool) -> Loader:
        return Loader(self.device, blocks, self.metrics, LoadOptions(), clock=time.monotonic)

    def turn(self) -> None:
        """Let the core and the device do one thing."""
        self.scheduler.step(time.monotonic())
        self.advance()

    def take(self) -> Taken:
        return self.shelf.take("m", None, {})

    def reload(self) -> None:
        """Load the plan anew and put it in place."""
        self.swap.serve("m", [], self.loader.load(self.take(), [1]))
        self.model = self.catalog.find("m", "")


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanRig]:
    rig = PlanRig(tmp_path, monkeypatch)
    yield rig
    rig.swap.see_off()
    rig.close()
    assert rig.sim.leaks() == []


def floats(rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)


def test_a_plan_takes_the_place_of_another_amid_requests(rig: PlanRig) -> None:
    """Requests in flight are answered by the old one, later ones by the new one and its graphs."""
    old = rig.begin()
    asked = [rig.submit(floats(1)) for _ in range(5)]
    rig.scheduler.step(time.monotonic())
    rig.reload()
    assert rig.model is not old
    late = rig.submit(floats(1))
    rig.swap.see_off()
    rig.run()
    for one in (*asked, late):
        assert (one.answer == floats(1) * 2).all()
    assert rig.model.graphs is not None
    assert rig.model.graphs.num_hits > 0


def test_memory_is_back_after_each_reload(rig: PlanRig) -> None:
    """Of the device and of pinned blocks: ten reloads hold no more than one."""
    rig.begin()
    held: list[tuple[int, int]] = []
    for _ in range(10):
        rig.reload()
        assert (rig.ask(floats(1)) == floats(1) * 2).all()
        rig.swap.see_off()
        held.append((rig.device.memory_info()[0], rig.blocks.allocated_bytes))
    assert len(set(held)) == 1


def test_what_the_running_version_took_is_what_the_next_one_needs(
    rig: PlanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are small beside activations and lanes; what was measured at its load counts."""
    old = rig.begin()
    assert old.taken_bytes > rig.take().signature.size_bytes(1)
    free = old.taken_bytes - 1
    monkeypatch.setattr(rig.device, "memory_info", lambda: (free, 10 * free))
    with pytest.raises(NoRoomError, match=rf"about {old.taken_bytes} bytes of memory, as it took"):
        rig.reload()
    monkeypatch.undo()
    assert rig.catalog.find("m", "") is old


def test_a_load_that_fails_for_want_of_memory_leaves_nothing(rig: PlanRig) -> None:
    """At whichever allocation; the running version serves on."""
    rig.begin()
    failed = 0
    for number in range(40):
        old, before = rig.model, (rig.device.memory_info()[0], len(rig.sim.leaks()))
        rig.sim.fail_alloc(after=number)
        try:
            rig.reload()
        except RequestError:
            failed += 1
            assert rig.catalog.find("m", "") is old
            assert (rig.device.memory_info()[0], len(rig.sim.leaks())) == before
        rig.swap.see_off()
    rig.sim.fail_alloc(after=1 << 30)
    assert failed >= 3  # of the slots and their memory; of the blocks a load can do with less
    assert (rig.ask(floats(1)) == floats(1) * 2).all()
