"""A virtual device whose streams share it: what one computes slows the others, as on one GPU.

Rules
- Copies take their own time; computing is shared. A launch begins when what is before it on its
  stream has ended, and has an amount of work: the seconds it would take alone.
- Without speed-ups one launch computes at a time, in the order in which they began to wait. With
  speed-ups k launches compute at once, each with a k-th of what k of them together can do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from headrace.device.ledger import Ledger
from headrace.device.sim import SimDevice
from headrace.device.sim_stream import SimStream


class Share:
    """How the launches that have begun share the device; pure."""

    def __init__(self, speed_up: Callable[[int], float] | None = None) -> None:
        """Start idle; one launch computes at a time where there is no `speed_up`."""
        self._speed_up = speed_up
        self._left_s: dict[SharedStream, float] = {}  # of work, in the order of their beginning
        self._as_of = 0.0
        self.busy_s = 0.0  # for so long at least one computed

    def begin(self, stream: SharedStream, work_s: float, now: float) -> None:
        """Let a launch share the device from now on."""
        self._advance(now)
        self._left_s[stream] = work_s

    def end(self, stream: SharedStream, now: float) -> None:
        """Take a launch out."""
        self._advance(now)
        del self._left_s[stream]

    def due_s(self, stream: SharedStream) -> float:
        """Return when its launch will be done if nothing else begins."""
        rate = self._rate(stream)
        return self._as_of + max(self._left_s[stream], 0.0) / rate if rate else math.inf

    def _rate(self, stream: SharedStream) -> float:
        if self._speed_up is None:
            return 1.0 if next(iter(self._left_s)) is stream else 0.0
        return self._speed_up(len(self._left_s)) / len(self._left_s)

    def _advance(self, now: float) -> None:
        passed_s, self._as_of = now - self._as_of, now
        if self._left_s:
            self.busy_s += passed_s
            for stream in self._left_s:
                self._left_s[stream] -= passed_s * self._rate(stream)


class SharedStream(SimStream):
    """A stream whose launches take as long as the device's other streams let them."""

    def __init__(self, device: SharedDevice, ledger: Ledger, priority: int) -> None:
        super().__init__(device, ledger, priority)
        self._shared = device
        self._launches: set[int] = set()  # numbers of the items that are launches
        self._is_computing = False

    @property
    def due(self) -> tuple[float, int]:
        """When the next item ends, and its number; infinity when there is none."""
        if self._is_computing and self.items:  # none after a fault of the device
            return self._shared.share.due_s(self), self.items[0].number
        return super().due

    def launch(self, work: Callable[[], None]) -> None:
        """Enqueue work that takes `device.launch_s` alone."""
        super().launch(work)
        self._launches.add(self.items[-1].number)
        self._begin(self._shared.now)

    def run_next(self) -> None:
        """End the next item, and what takes no time behind it; then a launch begins."""
        ends_at = self._last_end_s = self.due[0]
        self._shared.change()
        items = self.items
        if self._is_computing:
            self._is_computing = False
            self._shared.share.end(self, ends_at)
            self._launches.discard(items[0].number)
        items.popleft().run()
        while items and not items[0].duration_s and items[0].number not in self._launches:
            items.popleft().run()
        self._begin(ends_at)

    def _enqueue(self, duration_s: float, run: Callable[[], None]) -> None:
        super()._enqueue(duration_s, run)
        self._shared.change()

    def _begin(self, now: float) -> None:
        if self.items and not self._is_computing and self.items[0].number in self._launches:
            self._is_computing = True
            self._shared.share.begin(self, self.items[0].duration_s, now)


class SharedDevice(SimDevice):
    """The virtual device with streams that share it."""

    def __init__(self, share: Share, *, copy_bytes_per_s: float = math.inf) -> None:
        super().__init__(copy_bytes_per_s=copy_bytes_per_s)
        self.share = share
        self._next: tuple[float, SharedStream | None] | None = None  # None: to be looked for anew

    @property
    def is_dead(self) -> bool:
        """Whether `fail_device` has come true."""
        return self._sticky is not None

    def change(self) -> None:
        """Forget what is next: work came, or went."""
        self._next = None

    def step_before(self, until_s: float) -> bool:
        """Let what is next in time happen; False when that is later."""
        if self._fault is not None:
            self.change()
            return self.next_due_s() <= until_s and self.step()
        due_s, stream = self._next or self._look()
        if stream is None or due_s > until_s:
            return False
        self.now = max(self.now, due_s)
        stream.run_next()
        return True

    def run_until(self, now: float) -> None:
        """Let everything happen that is due until `now`, and then be it `now`."""
        while self.step_before(now):
            pass
        self.now = max(self.now, now)

    def open_stream(self, *, priority: int = 0) -> SharedStream:
        """Open a stream."""
        self.check()
        stream = SharedStream(self, self._ledger, priority)
        self._streams.append(stream)
        return stream

    def _end_next(self, stream: SimStream | None) -> None:
        super()._end_next(stream)
        self.change()  # a fault takes away what is enqueued on every stream

    def _look(self) -> tuple[float, SharedStream | None]:
        """Return what is next in time, and keep it: between two changes it stays what it is."""
        stream: Any = min(self._streams, key=lambda stream: stream.due, default=None)
        due_s = math.inf if stream is None else stream.due[0]
        self._next = (due_s, None if due_s == math.inf else stream)
        return self._next
