"""Virtual time and tags, apart from any queue."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from headrace.scheduling.fair import MAX_IDLE, FairClock


def serve_next(clock: FairClock, waiting: dict[str, list[int]]) -> str:
    """Serve a request of the source whose turn it is, and return the source."""
    source = min((each for each in waiting if waiting[each]), key=clock.tag)
    clock.serve(source, waiting[source].pop(0))
    return source


@given(
    st.lists(st.lists(st.integers(1, 8), min_size=30, max_size=30), min_size=2, max_size=5),
    st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=5, max_size=5),
)
def test_sources_that_wait_share_by_their_weights(
    rows: list[list[int]], weights: list[float]
) -> None:
    """While all wait, shares differ by no more than a request of each."""
    names = [f"source {index}" for index in range(len(rows))]
    weight: dict[str | None, float] = dict(zip(names, weights, strict=False))
    clock = FairClock(weight)
    waiting = dict(zip(names, rows, strict=True))
    for name in names:
        for _ in waiting[name]:
            clock.arrive(name)
    served = dict.fromkeys(names, 0.0)
    while all(waiting.values()):
        before = {name: sum(its) for name, its in waiting.items()}
        source = serve_next(clock, waiting)
        served[source] += (before[source] - sum(waiting[source])) / weight[source]
        for one, other in combinations(names, 2):
            most = 8 / weight[one] + 8 / weight[other]
            assert abs(served[one] - served[other]) <= most + 1e-9


def test_who_comes_back_has_no_claim_to_the_time_it_was_away() -> None:
    """It takes turns from then on."""
    clock = FairClock()
    waiting = {"here": [1] * 60, "away": [1]}
    for name, its in waiting.items():
        for _ in its:
            clock.arrive(name)
    for _ in range(30):
        serve_next(clock, waiting)
    waiting["away"] = [1] * 20
    for _ in waiting["away"]:
        clock.arrive("away")
    served = [serve_next(clock, waiting) for _ in range(20)]
    assert abs(served.count("away") - served.count("here")) <= 2


def test_new_names_do_not_hold_up_who_was_here_before() -> None:
    """A hundred that wait get a hundred turns for one; were new ones first, it would get none."""
    clock = FairClock()
    waiting: dict[str, list[int]] = {"steady": [1] * 50}
    for _ in range(50):
        clock.arrive("steady")
    served = []
    for number in range(100):
        for name in (f"new {number} a", f"new {number} b"):
            waiting[name] = [1]
            clock.arrive(name)
        served.append(serve_next(clock, waiting))
    assert served.count("steady") >= 3


def test_idle_sources_are_forgotten() -> None:
    """However many names there were, and though somebody always waits."""
    clock = FairClock()
    clock.arrive("steady")
    for number in range(20 * MAX_IDLE):
        clock.arrive(f"name {number}")
        clock.serve(f"name {number}", 1)
    assert len(clock) <= MAX_IDLE + 2
    clock.leave("steady")
    assert len(clock) == 0
