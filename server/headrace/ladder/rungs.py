"""Which rungs the ladder has: pure; what to measure next follows from what was measured.

synchronous    one stream; each request is copied, enqueued, copied back and waited for
asynchronous   one stream, one lane: the host stages the next request while the device works
double buffer  one stream, two lanes: the next request is enqueued behind the one that computes
N streams      so many slots, two lanes each
+ graphs       the same with CUDA graphs: what they bring without streams, and with them
batch N        the best so far, with more rows a request
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.errors import ConfigError

SYNC: Final = "sync"
ASYNC: Final = "async"
DOUBLE: Final = "double"
STREAMS: Final = ("2", "4", "8", "16")
GRAPHS: Final = "graphs"
BATCH: Final = "batch"
ALL_RUNGS: Final = (SYNC, ASYNC, DOUBLE, *STREAMS, GRAPHS, BATCH)
BATCHES: Final = (2, 4, 8, 16, 32)
NUM_LANES: Final = 2


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to run the engine."""

    num_slots: int
    num_lanes: int  # of each slot
    rows: int  # the batch dimension of each request, 1 for models without one
    is_synchronous: bool = False
    has_graphs: bool = False
    is_batch: bool = False  # measured because of its rows

    @property
    def name(self) -> str:
        """What people call it."""
        if self.is_synchronous:
            name = "synchronous"
        elif self.num_slots > 1:
            name = f"{self.num_slots} streams"
        else:
            name = "asynchronous" if self.num_lanes == 1 else "double buffer"
        name += " + graphs" if self.has_graphs else ""
        return f"{name}, batch {self.rows}" if self.is_batch else name

    @property
    def window(self) -> int:
        """How many requests are kept in: all lanes full, and one staged for every slot."""
        return 1 if self.is_synchronous else self.num_slots * (self.num_lanes + 1)


Pace = tuple[Rung, float]  # a rung that could be measured, and its rows a second


def parse_rungs(text: str) -> frozenset[str]:
    """Read the names of rungs, separated by commas.

    Raises:
        ConfigError: There is no such rung, or none is named.
    """
    names = {name.strip().lower() for name in text.split(",")} - {""}
    unknown = sorted(names - set(ALL_RUNGS))
    if unknown or not names:
        raise ConfigError(
            f"got {text!r}, expected some of {','.join(ALL_RUNGS)}; leave it out for all of them",
            field="--rungs",
        )
    if not names - {GRAPHS, BATCH}:
        raise ConfigError(
            f"got {text!r}, but {GRAPHS} and {BATCH} build on other rungs: name one of "
            f"{','.join(ALL_RUNGS[:-2])}, too",
            field="--rungs",
        )
    return frozenset(names)


def plain_rungs(wanted: Iterable[str], rows: int) -> list[Rung]:
    """Return the rungs that depend on nothing measured, lowest first."""
    names = set(wanted)
    rungs = []
    if SYNC in names:
        rungs.append(Rung(1, 1, rows, is_synchronous=True))
    if ASYNC in names:
        rungs.append(Rung(1, 1, rows))
    if DOUBLE in names:
        rungs.append(Rung(1, NUM_LANES, rows))
    rungs += [Rung(int(name), NUM_LANES, rows) for name in STREAMS if name in names]
    return rungs


def graph_rungs(wanted: Iterable[str], measured: Sequence[Pace]) -> list[Rung]:
    """Return what was measured, with graphs; one lane of the asynchronous rung tells no more."""
    if GRAPHS not in set(wanted):
        return []
    return [
        replace(rung, has_graphs=True)
        for rung, _ in measured
        if (rung.is_synchronous or rung.num_lanes == NUM_LANES) and not rung.has_graphs
    ]


def batch_rungs(
    wanted: Iterable[str], measured: Sequence[Pace], max_rows: int | None
) -> list[Rung]:
    """Return the fastest of what was measured with more rows a request.

    Args:
        wanted: Names of rungs.
        measured: All rungs so far, of one number of rows.
        max_rows: The most that the engine takes, None for any number.
    """
    if BATCH not in set(wanted) or not measured:
        return []
    best, _ = max(measured, key=lambda pace: pace[1])
    most = BATCHES[-1] if max_rows is None else max_rows
    return [replace(best, rows=rows, is_batch=True) for rows in BATCHES if best.rows < rows <= most]
