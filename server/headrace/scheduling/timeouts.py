"""How long a request may wait in the queue: the policy's time, or its own where it may have one."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from headrace.engines.batching_spec import QueuePolicy
from headrace.errors import QueueTimeoutError
from headrace.scheduling.request import Request

TIMED_OUT = QueueTimeoutError("Request timeout expired")  # Triton's words
SPARE = 64  # times of requests that left, before they are cleared away all at once


def wait_s(policy: QueuePolicy, request: Request) -> float:
    """Return for how long a request may wait in the queue; 0.0 for as long as it takes."""
    own_s, default_s = request.timeout_s, policy.default_timeout_s
    if policy.may_override and own_s and (own_s < default_s or not default_s):
        return own_s
    return default_s


class Timeouts:
    """The requests that may wait for some time only, by when that is over."""

    def __init__(self, is_waiting: Callable[[Request], object]) -> None:
        """Start empty; `is_waiting` says whether a request is still in the queue."""
        self._is_waiting = is_waiting
        self._times: list[tuple[float, int, Request]] = []
        self._sweep_at = SPARE

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at: float, number: int, request: Request) -> None:
        """Note when a request's time is over; `number` tells requests apart."""
        heappush(self._times, (at, number, request))
        if len(self._times) > self._sweep_at:
            self._times = [each for each in self._times if self._is_waiting(each[2])]
            heapify(self._times)
            self._sweep_at = 2 * len(self._times) + SPARE

    def due(self, now: float) -> list[Request]:
        """Return whose time is over and who still waits; each is told of once."""
        due = []
        times = self._times
        while times and times[0][0] <= now:
            request = heappop(times)[2]
            if self._is_waiting(request):
                due.append(request)
        return due
