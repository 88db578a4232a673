"""When requests come: arrival processes in virtual time, each decided by its seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]  # (n,) seconds, rising


class Arrival(NamedTuple):
    """A request on its way.

    Attributes:
        kind: Which of the model's kinds it is of; -1 for none, so that it runs alone.
        deadline_s: From its arrival on; infinity for none.
        timeout_s: Its own for the queue; 0 for none.
        cancelled_s: So long after its arrival its caller leaves; infinity for never.
    """

    at_s: float
    source: str | None = None
    rows: int = 1
    priority: int = 0
    kind: int = 0
    deadline_s: float = math.inf
    timeout_s: float = 0.0
    cancelled_s: float = math.inf


def poisson(rate: float, duration_s: float, rng: np.random.Generator) -> Times:
    """Return arrivals that know nothing of each other."""
    times = np.cumsum(rng.exponential(1 / rate, _enough(rate * duration_s)))
    return times[times < duration_s]


def constant(rate: float, duration_s: float, rng: np.random.Generator) -> Times:
    """Return arrivals at equal distances, the first one at random within such a distance."""
    return np.arange(rng.random() / rate, duration_s, 1 / rate)


def on_off(
    rate: float,
    duration_s: float,
    rng: np.random.Generator,
    *,
    on_s: float = 0.05,
    off_s: float = 0.1,
) -> Times:
    """Return Poisson arrivals in bursts with silence between, both exponentially long.

    Args:
        rate: Of all the time together; within a burst it is (on_s + off_s) / on_s times as high.
        duration_s: Of the whole.
        rng: Decides.
        on_s: Mean of a burst.
        off_s: Mean of a silence.
    """
    bursts, at_s = [], 0.0
    while at_s < duration_s:
        at_s += rng.exponential(off_s)
        length_s = rng.exponential(on_s)
        bursts.append(at_s + poisson(rate * (on_s + off_s) / on_s, length_s, rng))
        at_s += length_s
    times = np.concatenate(bursts)
    return times[times < duration_s]


PROCESSES: Final[Mapping[str, Callable[..., Times]]] = {
    "poisson": poisson,
    "on/off": on_off,
    "constant": constant,
}


def arrivals(
    process: str,
    rate: float,
    duration_s: float,
    seed: int,
    *,
    lengths: Mapping[str, float] = MappingProxyType({}),
    **fields: Any,
) -> list[Arrival]:
    """Return requests by the name of their process, all with these fields.

    Args:
        process: One of `PROCESSES`.
        rate: Requests a second.
        duration_s: Of the whole.
        seed: Decides.
        lengths: Of bursts and silences, as `on_off` takes them.
        fields: Of every Arrival.
    """
    times = PROCESSES[process](rate, duration_s, np.random.default_rng(seed), **lengths)
    return [Arrival(at_s, **fields) for at_s in times.tolist()]


def cameras(rates: Sequence[float], duration_s: float, seed: int) -> list[Arrival]:
    """Return frames of several sources, each at a steady rate from a moment of its own on.

    A source of the same place in `rates` begins at the same moment whatever the others' rates are.
    """
    seeds = np.random.SeedSequence(seed).spawn(len(rates))
    return merged(
        [Arrival(at_s, f"camera {index}") for at_s in times.tolist()]
        for index, (rate, own) in enumerate(zip(rates, seeds, strict=True))
        for times in [constant(rate, duration_s, np.random.default_rng(own))]
    )


def merged(streams: Iterable[Iterable[Arrival]]) -> list[Arrival]:
    """Return all of them by time."""
    return sorted((each for stream in streams for each in stream), key=lambda each: each.at_s)


def _enough(expected: float) -> int:
    """Return a number that a Poisson count with this mean does not reach."""
    return int(expected + 10 * expected**0.5 + 20)
