"""Versions of a model on the virtual device, swapped while a test steps the core by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.catalog import ModelCatalog
from headrace.control.swap import Loaded, Swap
from headrace.link.local import LocalLink
from headrace.metrics import Metrics
from headrace.model import ServedModel
from headrace.slots.blocks import BlockPool
from headrace.slots.pool import SlotPool
from headrace.slots.slot import Slot
from helpers.core_rig import Asked, Rig
from helpers.served import served

NAME = "m"
GRACE_S = 5.0


class Watch:
    """What the timeline is to a swap: it must know every slot that is open."""

    def __init__(self) -> None:
        self.slots: set[Slot] = set()

    def add(self, slots: Iterable[Slot]) -> None:
        self.slots.update(slots)

    def remove(self, slots: Iterable[Slot]) -> None:
        self.slots.difference_update(slots)


class SwapRig(Rig):
    """A core whose versions come and go; whoever waits lets the device work meanwhile."""

    def __init__(self, **options: Any) -> None:
        super().__init__(num_slots=0, **options)
        self.scheduler.remove_line(self.line)
        self.link = LocalLink(self.scheduler)
        self.catalog = ModelCatalog()
        self.all_metrics = Metrics()
        self.watch = Watch()
        self.on_loop: list[Callable[[], None]] = []
        self.swap = Swap(
            self.catalog,
            self.link,
            self.all_metrics,
            self.watch,
            grace_s=GRACE_S,
            on_loop=self.on_loop.append,
            clock=self.clock,
            wait=self.wait,
        )

    def wait(self, seconds: float) -> None:
        """Let the core and the device work for so long."""
        while self.on_loop:
            self.on_loop.pop(0)()
        self.link.step(self.clock())
        self.device.run_until(self.clock() + seconds)

    def version(self, number: int, *, num_slots: int = 1, blocks: int = 0) -> Loaded:
        """A version that is warm."""
        pool = SlotPool([self._slot(index) for index in range(num_slots)])
        model = served("x UINT8[?]", "y UINT8[?]", name=NAME, version=number, pool=pool)
        model.line.metrics = self.all_metrics.model(NAME, str(number))
        own = BlockPool(self.device, self.blocks.budget_bytes)
        own.reserve(4096, blocks)
        return Loaded(model, own)

    def serve(self, *new: Loaded, kept: Iterable[ServedModel] = ()) -> None:
        """Serve these versions and no others."""
        self.swap.serve(NAME, list(kept), new)

    def ask(self, model: ServedModel, payload: bytes = b"a") -> Asked:
        """Submit a request to a version; raises what refuses it."""
        asked: Asked = self.request(payload)
        asked.request.line = model.line
        self.link.submit(asked.request, self.clock())
        return asked

    def close_all(self) -> None:
        """See everything off, and hold that nothing stays open."""
        self.serve()
        self.swap.see_off()
        assert self.watch.slots == set()
        self.close()
