"""The pace between two sweeps, in numbers instead of seconds that pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.slots.wait import (
    DENSE_CREDIT_S,
    DENSE_SHARE,
    DENSE_TURN_S,
    MOST_LATE_S,
    SHORTEST_NAP_S,
    Pace,
    Wait,
    choose_wait,
)

NAP_S = 30e-6
TURN_S = 5e-6  # between two dense sweeps, here


@pytest.mark.parametrize(
    ("wanted", "kind", "expected"),
    [
        ("auto", "host", Wait.NOTIFY),
        ("auto", "sim", Wait.NOTIFY),
        ("auto", "cudart", Wait.PREDICT),
        ("predict", "cudart", Wait.PREDICT),
        ("spin", "cudart", Wait.SPIN),
        ("nap", "host", Wait.NAP),
        ("notify", "host", Wait.NOTIFY),
    ],
)
def test_the_wait_fits_the_device(wanted: str, kind: str, expected: Wait) -> None:
    """Notify where the device can, predict where it cannot."""
    assert choose_wait(wanted, kind) is expected


def test_a_gpu_cannot_notify() -> None:
    """A callback of the driver that runs Python can deadlock, so it is refused."""
    with pytest.raises(ConfigError, match="predict, spin or nap"):
        choose_wait("notify", "cudart")


@pytest.mark.parametrize(("wait", "rest_s"), [(Wait.SPIN, 0.0), (Wait.NAP, NAP_S)])
def test_spin_and_nap_do_not_care_what_is_due(wait: Wait, rest_s: float) -> None:
    """Their rest is the same whether the work is nearly done or has just begun."""
    pace = Pace(wait, nap_s=NAP_S)
    for due_at in (0.0, 7.0, 8.0):
        assert pace.next_look(7.0, due_at) == 7.0 + rest_s


def test_prediction_sleeps_up_to_the_due_time_and_then_asks_at_once() -> None:
    """One sleep through all of it, then no rest at all."""
    pace = Pace(Wait.PREDICT, nap_s=NAP_S)
    assert pace.next_look(10.0, 10.001) == pytest.approx(10.001)
    assert pace.next_look(10.001, 10.001) == 10.001
    assert pace.next_look(10.001 + TURN_S, 10.001) == 10.001 + TURN_S


def test_prediction_wakes_earlier_where_sleeps_end_late() -> None:
    """Sleeps that take 40 us longer than asked for are begun 40 us shorter."""
    pace = Pace(Wait.PREDICT, nap_s=NAP_S)
    for _ in range(100):
        pace.woke(100e-6, 140e-6)
    assert pace.next_look(1.0, 1.001) == pytest.approx(1.001 - 40e-6, abs=1e-6)


def test_one_accident_does_not_cost_a_core() -> None:
    """A thread that the system kept from running for a second is prepared for within bounds."""
    pace = Pace(Wait.PREDICT, nap_s=NAP_S)
    pace.woke(100e-6, 1.0)
    assert pace.late_s <= MOST_LATE_S


def test_unknown_work_is_asked_for_densely_only_as_long_as_the_credit_lasts() -> None:
    """Where nothing is known the due time is past: first spin, then nap."""
    pace = Pace(Wait.PREDICT, nap_s=NAP_S)
    now, rests = 5.0, []
    for _ in range(1000):
        look_at = pace.next_look(now, 5.0)
        rests.append(look_at - now)
        now = look_at + TURN_S
    num_at_once = next(place for place, rest in enumerate(rests) if rest > 0)
    assert num_at_once * TURN_S * (1 - DENSE_SHARE) == pytest.approx(DENSE_CREDIT_S, rel=0.05)
    assert sum(rest > 0 for rest in rests) > 100


@given(
    st.lists(st.floats(20e-6, 0.02), min_size=1, max_size=60),
    st.floats(0.0, 2.0),
    st.floats(1e-6, 60e-6),
)
def test_dense_asking_never_exceeds_its_share(
    works_s: list[float], foresight: float, turn_s: float
) -> None:
    """Whatever the work takes and however wrong its forecast is, the share holds."""
    pace = Pace(Wait.PREDICT, nap_s=NAP_S)
    now = began_at = 1.0
    dense_s = 0.0
    for work_s in works_s:
        done_at, due_at = now + work_s, now + foresight * work_s
        while now < done_at:
            look_at = pace.next_look(now, due_at)
            assert look_at == now or look_at - now >= min(SHORTEST_NAP_S, NAP_S)
            assert look_at <= max(due_at, now + NAP_S)
            dense_s += min(turn_s, DENSE_TURN_S) if look_at == now else 0.0
            now = look_at + turn_s
    bound_s = DENSE_SHARE * (now - began_at) + DENSE_CREDIT_S + DENSE_TURN_S
    assert dense_s <= bound_s * (1 + 1e-9)
