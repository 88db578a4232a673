"""Since when the oldest waits, where requests take each other's place."""

from __future__ import annotations

from math import inf
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from headrace.scheduling.ages import SPARE, Ages
from headrace.scheduling.fair import FairClock
from headrace.scheduling.flow import Entry
from headrace.scheduling.level import Level
from headrace.scheduling.request import Request


class Waits:
    """As much of a request as a level looks at."""

    source = None
    rows = 1


def entry(number: int, since: float) -> Entry:
    return (float(number), number, cast("Request", Waits()), since, inf)


def ages_of(level: Level) -> Ages | None:
    return level._ages


@given(st.lists(st.tuples(st.sampled_from(["come", "renew", "leave", "run"]), st.integers(0, 99))))
def test_it_is_that_of_who_waits(steps: list[tuple[str, int]]) -> None:
    """Compared with a look at all of them; what is kept of those that left is bounded."""
    level, waiting = Level(0.0, FairClock()), cast("list[Entry]", [])
    for number, (what, which) in enumerate(steps):
        picked = waiting[which % len(waiting)] if waiting else None
        if what == "come":
            waiting.append(entry(number, float(number)))
            level.add(waiting[-1])
        elif what == "renew" and picked is not None:  # as `Intake` does: first in, then out
            waiting.append(entry(number, picked[3]))
            level.add(waiting[-1])
            waiting.remove(picked)
            level.remove(picked[2])
        elif what == "leave" and picked is not None:
            waiting.remove(picked)
            level.remove(picked[2])
        elif what == "run" and (head := level.head()) is not None:
            waiting.remove(head.entry)
            level.pop(head)
        assert level.since == min((each[3] for each in waiting), default=inf)
        if what in ("come", "renew") and (ages := ages_of(level)) is not None:
            assert len(ages) <= 2 * (len(waiting) + 1) + SPARE


def test_nothing_stays_when_it_runs_dry() -> None:
    """A queue in which one took another's place is as quick as ever afterwards."""
    level = Level(0.0, FairClock())
    first, second, renewed = entry(0, 0.0), entry(1, 1.0), entry(2, 0.0)
    for each in (first, second, renewed):
        level.add(each)
    assert ages_of(level) is not None
    for each in (first, second, renewed):
        level.remove(each[2])
    assert level.since == inf
    level.add(entry(3, 3.0))
    assert ages_of(level) is None
    level.add(entry(4, 4.0))
    assert (level.since, ages_of(level)) == (3.0, None)


def test_a_look_is_no_walk_over_all_that_wait() -> None:
    """Where each source's latest alone matters, thousands wait and each batch asks."""
    level = Level(0.0, FairClock())
    entries = [entry(number, float(number)) for number in range(2000)]
    for each in entries:
        level.add(each)
    level.add(entry(2000, 0.5))
    level.remove(entries[0][2])
    looked = 0

    class Counted(dict):  # type: ignore[type-arg]  # counts how many entries are looked at
        def get(self, key: Any, default: Any = None) -> Any:
            nonlocal looked
            looked += 1
            return super().get(key, default)

    assert level._ages is not None
    level._ages._entries = Counted(level.entries)
    assert level.since == 0.5
    assert looked <= 2
