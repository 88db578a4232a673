"""How to wait between two sweeps of the poller while work is in flight.

spin    ask again at once: lowest latency, one core busy while anything is in flight
nap     sleep some tens of microseconds between sweeps: about a quarter of a core
notify  the device says when to look (host and sim streams run Python, so they can): no cost

Sleeping in the stepping thread is deliberate: a second thread that polls would take the
interpreter lock from the first, and its p99 would become the 5 ms switch interval.
"""

from __future__ import annotations

from enum import Enum

from headrace.errors import ConfigError


class Wait(Enum):
    """The strategy between two sweeps."""

    SPIN = "spin"
    NAP = "nap"
    NOTIFY = "notify"


def choose_wait(wanted: str, device_kind: str) -> Wait:
    """Pick the strategy for a device; "auto" is notify where it exists, else nap.

    Raises:
        ConfigError: `notify` for a GPU, whose driver has no callback that may run Python.
    """
    can_notify = device_kind != "cudart"
    if wanted == "auto":
        return Wait.NOTIFY if can_notify else Wait.NAP
    wait = Wait(wanted)
    if wait is Wait.NOTIFY and not can_notify:
        raise ConfigError(
            "a GPU cannot notify without running Python in a driver callback; use spin or nap",
            field="--poller-wait",
        )
    return wait
