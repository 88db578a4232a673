"""A real queue and a plain one that hear the same and must answer alike."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Final

from headrace.engines.base import Kind
from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.dynamic import LEAD_S
from headrace.scheduling.request import Request
from helpers.queue_oracle import QueueOracle
from helpers.queue_rig import KIND, Queue, new_kind

TICK_S: Final = 0.001  # times are whole ticks; what the configuration names lies between them
MAX_QUEUE_SIZE: Final = 12
NARROW: Final = new_kind()
NARROW.max_rows = 3  # the engine takes no more of these
KINDS: Final[tuple[Kind | None, ...]] = (KIND, NARROW, None)


class Twins:
    """Both of them; every method holds that they agree.

    Attributes:
        come: Requests that came and whose callers have not left, served or not.
    """

    def __init__(self, spec: BatchingSpec) -> None:
        sizes = tuple(size for size in spec.preferred_rows if size < spec.max_rows)
        default = min(spec.default_priority, spec.num_priorities)
        self.spec = replace(spec, preferred_rows=sizes, default_priority=default)
        self.real = Queue(self.spec, max_queue_size=MAX_QUEUE_SIZE)
        self.plain = QueueOracle(self.spec, LEAD_S, MAX_QUEUE_SIZE)
        self.come: list[Request] = []

    def offer(
        self,
        *,
        rows: int = 1,
        kind: int = 0,
        source: str | None = None,
        priority: int = 0,
        timeout_s: float = 0.0,
        waited: int = 0,
    ) -> None:
        """Let a request come that has waited for its block for some ticks, if it is let in."""
        most = 3 if KINDS[kind] is NARROW else self.spec.max_rows
        request = self.real.request(
            rows=min(rows, most, self.spec.max_rows),
            kind=KINDS[kind],
            source=source,
            priority=min(priority, self.spec.num_priorities),
            timeout_s=timeout_s,
        )
        request.received_at -= waited * TICK_S
        batcher, now = self.real.batcher, self.real.now
        drop = batcher.refuse(request, now)
        assert (drop is not None) == self.plain.is_full(request)
        if drop is not None:
            assert (drop.request, drop.reason) == (request, "queue_full")
            if not self._make_room(request):
                return
        batcher.add(request, now)
        self._dropped(self.plain.add(request, now), "superseded")
        self._hold()
        self.come.append(request)

    def wait(self, ticks: int) -> None:
        """Let time pass."""
        self.real.now += ticks * TICK_S

    def be_busy(self, ticks: int) -> None:
        """Let every slot be busy for a while from now on."""
        self.real.start = self.real.now + ticks * TICK_S

    def remove(self, index: int) -> None:
        """Let a caller leave, who may have been served already."""
        request = self.come.pop(index)
        assert self.real.batcher.remove(request) == self.plain.remove(request)
        self._hold()

    def run(self) -> bool:
        """Ask for what should run; False when nothing should."""
        now, start = self.real.now, max(self.real.now, self.real.start)
        batch = self.real.batcher.next_batch(now)
        self._dropped(self.plain.time_out(now), "timeout")
        self.plain.agrees(None if batch is None else batch.requests, start, now)
        if batch is None:
            look = self.real.batcher.next_look(now)
            assert (inf if look is None else look) == self.plain.look_at(start, now)
            return False
        assert batch.rows == sum(request.rows for request in batch.requests)
        if batch.layout.kind is not None:
            assert batch.layout is batch.layout.kind.layout(batch.rows)
        self._hold()
        return True

    def expire(self) -> None:
        """Let what has waited too long end."""
        self.real.batcher.expire(self.real.now)
        self._dropped(self.plain.time_out(self.real.now), "timeout")
        self._hold()

    def clear(self) -> None:
        """Take all out."""
        assert set(self.real.batcher.clear()) == {entry.request for entry in self.plain.entries}
        for entry in list(self.plain.entries):
            self.plain.remove(entry.request)
        self._hold()

    def _make_room(self, request: Request) -> bool:
        """Say whether somebody gives way, who may."""
        displaced = self.real.batcher.displace(request)
        may_be = self.plain.displaced_by(request)
        if displaced is None:
            assert not may_be
            return False
        assert displaced.request in may_be
        assert displaced.reason == "displaced"
        assert self.plain.remove(displaced.request)
        return True

    def _dropped(self, wanted: list[Request], reason: str | None) -> None:
        """Hold that just these were dropped, for this reason."""
        dropped = self.real.batcher.dropped
        assert {drop.request for drop in dropped} == set(wanted)
        assert all(drop.reason == reason for drop in dropped)
        dropped.clear()

    def _hold(self) -> None:
        assert self.real.batcher.dropped == []
        assert len(self.real.batcher) == len(self.plain.entries)
