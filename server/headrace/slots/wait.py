"""When to ask the poller again while work is in flight.

spin     ask again at once: lowest latency, one core busy while anything is in flight
nap      sleep some tens of microseconds between sweeps: about a quarter of a core
predict  sleep through most of what the work is known to take, then ask densely; dense asking is
         rationed, so that work of no steady duration costs no more than napping
notify   the device says when to look (host and sim streams run Python, so they can): no cost

`Pace` decides and is told the time; the drivers in `rpc/` sleep as it says. Sleeping in the
stepping thread is deliberate: a second thread that polls would take the interpreter lock from the
first, and its p99 would become the 5 ms switch interval. What each strategy costs and gives:
`docs/benchmarks.md`.
"""

from __future__ import annotations

from enum import Enum

from headrace.errors import ConfigError
from headrace.slots.estimate import Estimate

LONGEST_NAP_S = 200e-6
"""Longest sleep of a thread that also receives requests: so late may an arrival be noticed."""
SHORTEST_NAP_S = 5e-6  # a shorter sleep costs more than the sweep that it saves
DENSE_SHARE = 0.25  # of the time may go into asking densely, on average
DENSE_CREDIT_S = 400e-6  # the most that can be saved up of it: a burst of dense asking
DENSE_TURN_S = 20e-6  # the most that one turn is charged: beyond, it did something useful
MOST_LATE_S = 100e-6  # a later wake-up was an accident; preparing for it would cost too much


class Wait(Enum):
    """The strategy between two sweeps."""

    SPIN = "spin"
    NAP = "nap"
    PREDICT = "predict"
    NOTIFY = "notify"


def choose_wait(wanted: str, device_kind: str) -> Wait:
    """Pick the strategy for a device; "auto" is notify where it exists, else predict.

    Raises:
        ConfigError: `notify` for a GPU, whose driver has no callback that may run Python.
    """
    can_notify = device_kind != "cudart"
    if wanted == "auto":
        return Wait.NOTIFY if can_notify else Wait.PREDICT
    wait = Wait(wanted)
    if wait is Wait.NOTIFY and not can_notify:
        raise ConfigError(
            "a GPU cannot notify without running Python in a driver callback; use predict, spin "
            "or nap",
            field="--poller-wait",
        )
    return wait


class Pace:
    """Says when to sweep next; it never looks at a clock itself."""

    def __init__(self, wait: Wait, *, nap_s: float) -> None:
        self._wait = wait
        self._nap_s = nap_s
        self._late = Estimate(0.0)  # how much longer than asked for a sleep takes
        self._credit_s = DENSE_CREDIT_S
        self._asked_at = 0.0
        self._is_dense = False

    @property
    def late_s(self) -> float:
        """How late a sleep is expected to end."""
        return min(self._late.most_s, MOST_LATE_S)

    def next_look(self, now: float, due_at: float) -> float:
        """Return when to sweep again, in clock seconds; `now` for at once.

        Args:
            now: Clock seconds.
            due_at: When the work that is done first is likely to be done; in the past where
                nothing is known of it.
        """
        if self._wait is Wait.SPIN:
            return now
        if self._wait is Wait.NAP:
            return now + self._nap_s
        self._account(now)
        look_at = due_at - self.late_s
        if look_at - now >= SHORTEST_NAP_S:
            return look_at
        self._is_dense = self._credit_s > 0
        return now if self._is_dense else now + self._nap_s

    def woke(self, wanted_s: float, slept_s: float) -> None:
        """Learn how long a sleep of `wanted_s` really took."""
        self._late.learn(min(max(slept_s - wanted_s, 0.0), MOST_LATE_S))

    def _account(self, now: float) -> None:
        """Earn a share of the time that went by, and pay for it if it was spent asking."""
        passed_s = now - self._asked_at
        self._asked_at = now
        self._credit_s += DENSE_SHARE * passed_s
        if self._is_dense:
            self._credit_s -= min(passed_s, DENSE_TURN_S)
            self._is_dense = False
        self._credit_s = min(self._credit_s, DENSE_CREDIT_S)
