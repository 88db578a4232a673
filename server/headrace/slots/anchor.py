"""An anchor: places what a device timed on the host's clock, so that both can be drawn together.

A GPU tells only the seconds between two of its events. The anchor is an event whose moment is
known on the host's clock as well: it is recorded on a stream of its own that is always empty, and
the host notes the time before recording it and after seeing it done. The moment lies between the
two, so half their distance is the accuracy. It is measured anew every few seconds, because the two
clocks drift apart and because CUDA tells durations in single precision.

Rules
- `calibrate` and `place` are called on a thread that the device is bound to, one at a time.
- Slots have an anchor only while somebody wants to know (a timeline, the ladder); without one a
  lane's timing costs one comparison more.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan, nan
from typing import TYPE_CHECKING

from headrace.device.base import Device, Event, Stream
from headrace.slots.batch import Placed, Timing

if TYPE_CHECKING:
    from headrace.slots.lane import Lane

NUM_TRIES = 5  # the closest of so many: a try during which the host was interrupted is far off
MAX_QUERIES = 2000  # some milliseconds: a device that does not answer by then keeps its old anchor
RENEW_AFTER_S = 5.0  # single precision tells 5 s to half a microsecond; so far clocks hardly drift


class Anchor:
    """One moment of a device, known on the host's clock."""

    def __init__(self, device: Device, clock: Callable[[], float]) -> None:
        """Measure for the first time; a device whose work the host times itself needs nothing."""
        self._device = device
        self._clock = clock
        self._stream: Stream | None = None
        self._events: list[Event] = []  # the anchor, and one to try with
        self._host_at = nan  # clock seconds at which the anchor's event was done
        self._renew_at = -inf
        self.accuracy_s = 0.0 if device.is_unified else inf  # seconds that a place may be off
        if not device.is_unified:
            self._stream = device.open_stream()
            self._events = [device.open_event(is_timed=True) for _ in range(2)]
            self.calibrate()

    def calibrate(self) -> None:
        """Measure the anchor anew: waits some tens of microseconds for a stream that is empty."""
        if self._stream is None:
            return
        closest_s = inf
        for _ in range(NUM_TRIES):
            before = self._clock()
            if not self._try(self._stream, self._events[1]):
                continue
            distance_s = self._clock() - before
            if distance_s < closest_s:
                closest_s = distance_s
                self._events.reverse()
                self._host_at = before + distance_s / 2
                self.accuracy_s = distance_s / 2
        self._renew_at = self._clock() + RENEW_AFTER_S

    def place(self, lane: Lane, timing: Timing, now: float) -> Placed:
        """Return the timing of a lane that is done, with its place; `now` in clock seconds."""
        if not lane.marks:
            return Placed.of(timing, lane, timing.started_at)
        if now >= self._renew_at:
            self.calibrate()
        if isnan(self._host_at):  # the device has not answered so far
            return Placed.of(timing, lane, lane.enqueued_at)
        since_s = self._device.elapsed_s(self._events[0], lane.marks[0])  # below 0: it was before
        return Placed.of(timing, lane, self._host_at + since_s)

    def close(self) -> None:
        """Give stream and events back; a second call does nothing."""
        for resource in (self._stream, *self._events):
            if resource is not None:
                resource.close()
        self._stream = None

    @staticmethod
    def _try(stream: Stream, event: Event) -> bool:
        stream.record(event)
        return any(event.is_done() for _ in range(MAX_QUERIES))
