"""Which rungs there are, and in which order they are climbed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.ladder.rungs import (
    ALL_RUNGS,
    BATCHES,
    Rung,
    batch_rungs,
    graph_rungs,
    parse_rungs,
    plain_rungs,
)


def names(rungs: list[Rung]) -> list[str]:
    return [rung.name for rung in rungs]


def test_rungs_that_build_on_others_are_not_enough() -> None:
    """Graphs and batches of nothing would be an empty ladder."""
    for text in ("graphs", "batch", "batch,graphs"):
        with pytest.raises(ConfigError, match="build on other rungs"):
            parse_rungs(text)


def test_the_whole_ladder() -> None:
    """From synchronous over one stream to sixteen, then graphs, then batches of the best."""
    plain = plain_rungs(ALL_RUNGS, 1)
    assert names(plain) == [
        *("synchronous", "asynchronous", "double buffer"),
        *("2 streams", "4 streams", "8 streams", "16 streams"),
    ]
    paces = [(rung, float(place)) for place, rung in enumerate(plain)]
    graphs = graph_rungs(ALL_RUNGS, paces)
    assert names(graphs) == [
        *("synchronous + graphs", "double buffer + graphs"),
        *("2 streams + graphs", "4 streams + graphs"),
        *("8 streams + graphs", "16 streams + graphs"),
    ]
    paces += [(graphs[2], 99.0), (graphs[3], 50.0)]
    assert names(batch_rungs(ALL_RUNGS, paces, None)) == [
        f"2 streams + graphs, batch {rows}" for rows in (2, 4, 8, 16, 32)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sync,double,4", ["synchronous", "double buffer", "4 streams"]),
        (" 16 , SYNC,", ["synchronous", "16 streams"]),
    ],
)
def test_rungs_by_name(text: str, expected: list[str]) -> None:
    """Case, order and spaces do not matter."""
    assert names(plain_rungs(parse_rungs(text), 1)) == expected


@pytest.mark.parametrize("text", ["", ",", "3", "sync,all", "sync;double"])
def test_unknown_rungs_are_refused(text: str) -> None:
    """The error names what was given and what there is."""
    with pytest.raises(ConfigError, match="expected some of sync,async,double") as raised:
        parse_rungs(text)
    assert raised.value.field == "--rungs"


@given(st.sets(st.sampled_from(ALL_RUNGS)), st.integers(1, 40), st.none() | st.integers(1, 40))
def test_rungs_only_ever_grow(wanted: set[str], rows: int, max_rows: int | None) -> None:
    """Nothing comes twice, batches stay within what the engine takes, windows feed every lane."""
    plain = plain_rungs(wanted, rows)
    paces = [(rung, 1.0 / (1 + place)) for place, rung in enumerate(plain)]
    batches = batch_rungs(wanted, paces, max_rows)
    rungs = [*plain, *graph_rungs(wanted, paces), *batches]
    assert len(set(rungs)) == len(rungs)
    assert all(rung.rows == rows for rung in plain)
    assert all(
        rows < rung.rows <= min(max_rows or 32, 32) and rung.rows in BATCHES for rung in batches
    )
    for rung in rungs:
        if rung.is_synchronous:
            assert rung.window == 1
        else:
            assert rung.window > rung.num_slots * rung.num_lanes
    if "batch" not in wanted:
        assert not batches


def test_no_graphs_for_one_lane_and_no_batches_of_nothing() -> None:
    """Where nothing could be measured, nothing follows."""
    plain = plain_rungs({"async"}, 1)
    assert graph_rungs(ALL_RUNGS, [(rung, 1.0) for rung in plain]) == []
    assert batch_rungs(ALL_RUNGS, [], None) == []
