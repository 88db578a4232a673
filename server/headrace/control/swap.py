"""Puts versions in place of others in one step, and sees off what was replaced.

Rules
- Called on the loading thread, one call at a time.
- What is replaced serves all that had come for it: queued, in flight, its replies not told yet.
  Only then are its slots closed. Requests that are on their way in are sent on to what serves now.
- There is a bound: what waits longer than the grace is ended with an error; what is in flight ends
  when the poller gives its slot up at the latest.
- Whoever answers calls is told on the thread that calls are answered on (`on_loop`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from headrace.catalog import UNAVAILABLE, UNLOADED, UNLOADING, Absent, ModelCatalog
from headrace.errors import UnavailableError
from headrace.link.base import LineLink
from headrace.metrics import Metrics
from headrace.model import ServedModel
from headrace.observe import observe_model
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import STALL_TIMEOUT_S
from headrace.slots.slot import Slot
from headrace.slots.state import SlotState

log = logging.getLogger(__name__)

LOOK_S: Final = 0.002  # between two questions whether a version is done with
FLIGHT_S: Final = STALL_TIMEOUT_S + 10.0  # the poller has given a slot up by then
CLOSE_S: Final = 10.0  # for the slots of a version that failed: its stream may never end


@dataclass(frozen=True, slots=True)
class Loaded:
    """A version that is warm, and the staging blocks that it was warmed up with."""

    model: ServedModel
    blocks: BlockPool

    def close(self) -> None:
        """Close both; for a version that never served."""
        try:
            self.model.close()
        finally:
            self.blocks.close()


class SlotWatch(Protocol):
    """Who wants to know of slots that come and go."""

    def add(self, slots: Iterable[Slot]) -> None:
        """These are served from now on."""

    def remove(self, slots: Iterable[Slot]) -> None:
        """These will be closed."""


class Swap:
    """Changes what is served.

    Args:
        catalog: Says who serves what.
        link: To the scheduler.
        metrics: Show what is served.
        watch: The timeline.
        grace_s: How long requests may wait for a version that was replaced.
        on_loop: Has something called on the thread that calls are answered on.
        clock: Seconds.
        wait: Sleeps for so many seconds.
    """

    def __init__(
        self,
        catalog: ModelCatalog,
        link: LineLink,
        metrics: Metrics,
        watch: SlotWatch,
        *,
        grace_s: float,
        on_loop: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._catalog = catalog
        self._link = link
        self._metrics = metrics
        self._watch = watch
        self._grace_s = grace_s
        self._on_loop = on_loop
        self._clock = clock
        self._wait = wait
        self._leaving: deque[ServedModel] = deque()

    @property
    def has_leaving(self) -> bool:
        """Whether something was replaced that has not been seen off."""
        return bool(self._leaving)

    def serve(self, name: str, kept: Sequence[ServedModel], new: Sequence[Loaded]) -> None:
        """Serve exactly these versions of a model from now on; none unloads it."""
        for each in new:
            self._link.add_line(each.model.line, each.blocks)
            each.blocks.close()  # what the pool had no need of
            self._watch.add(each.model.line.pool.slots)
            observe_model(self._metrics, each.model)
        replaced = self._catalog.serve(name, [*kept, *(each.model for each in new)])
        served = self._catalog.versions(name)
        for model in replaced:
            if model.spec.version not in served:
                self._mark(model, UNLOADING, "")
            self._link.retire_line(model.line)
        self._leaving.extend(replaced)

    def see_off(self) -> None:
        """Wait until everything that was replaced is done with, and close it."""
        while self._leaving:
            model = self._leaving.popleft()
            self._drain(model)
            self._close(model)
            if model.spec.version not in self._catalog.versions(model.spec.name):
                self._metrics.remove_model(model.spec.name, str(model.spec.version))
                self._mark(model, UNAVAILABLE, UNLOADED)
            log.info("%s version %d is closed", model.spec.name, model.spec.version)

    def _drain(self, model: ServedModel) -> None:
        if self._waits(model, self._grace_s):
            return
        name = model.spec.name
        log.warning("%s: requests have waited for %g s: they are ended", name, self._grace_s)
        error = UnavailableError(f"{name} was unloaded while the request waited for it")
        self._on_loop(partial(self._link.drop_waiting, model.line, error))
        if not self._waits(model, FLIGHT_S):
            raise RuntimeError(f"{name} version {model.spec.version} never ends its requests")

    def _waits(self, model: ServedModel, most_s: float) -> bool:
        """Wait until a version is done with; False when that takes too long."""
        give_up_at = self._clock() + most_s
        while not self._link.is_done_with(model.line):
            if self._clock() >= give_up_at:
                return False
            self._wait(LOOK_S)
        return True

    def _close(self, model: ServedModel) -> None:
        slots = model.line.pool.slots
        self._watch.remove(slots)
        self._link.remove_line(model.line)
        if not any(slot.state is SlotState.FAULTED for slot in slots):
            model.close()
            return
        # Nothing says whether its stream will ever end, and the next load must not wait for it.
        closing = threading.Thread(
            target=_close, args=(model,), name="headrace-closing", daemon=True
        )
        closing.start()
        closing.join(CLOSE_S)
        if closing.is_alive():
            log.error("%s: slots that failed do not close: their memory is lost", model.spec.name)

    def _mark(self, model: ServedModel, state: str, reason: str) -> None:
        spec = model.spec
        self._catalog.mark(spec.name, spec.version, Absent(state, reason, is_fault=False))


def _close(model: ServedModel) -> None:
    try:
        model.close()
    except Exception:
        log.exception("closing %s failed", model.spec.name)
