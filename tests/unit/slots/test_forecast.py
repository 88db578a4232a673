"""What a slot expects its work to take, from timings written by hand and by the virtual device."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.base import Layout
from headrace.engines.layout import plan_layout
from headrace.slots.batch import Timing
from headrace.slots.estimate import Estimate
from headrace.slots.forecast import MAX_LAYOUTS, Forecast
from helpers.core_rig import Rig
from helpers.queue_rig import new_kind


def layout_of(size: int) -> Layout:
    """Return a layout of its own."""
    return plan_layout([(size,)], [size], [(size,)], [size])


def timing(execute_s: float, copy_s: float = 0.0) -> Timing:
    """Return what a lane reports."""
    return Timing(0.0, copy_s, execute_s, copy_s, 0.0)


def test_steady_work_is_known_exactly_after_a_while() -> None:
    """Copies count, too; each layout is known for itself."""
    forecast, (short, long) = Forecast(), (layout_of(1), layout_of(2))
    for _ in range(60):
        forecast.learn(short, timing(0.001, 0.0001))
        forecast.learn(long, timing(0.005))
    assert forecast.least_s(short) == pytest.approx(0.0012, rel=1e-3)
    assert forecast.least_s(long) == pytest.approx(0.005, rel=1e-3)


def test_nothing_is_known_of_new_or_unmeasured_work() -> None:
    """Then the answer is 0: look from the start."""
    forecast, layout = Forecast(), layout_of(1)
    assert forecast.least_s(layout) == 0.0
    forecast.learn(layout, timing(nan))
    assert forecast.least_s(layout) == 0.0


def test_what_has_not_run_here_is_thought_to_take_what_it_takes_elsewhere() -> None:
    """By the rows that run, padding included; nothing is thought of what shares no batches."""
    forecast, kind = Forecast(), new_kind()
    forecast.usual_s = {3: 0.003, 4: 0.004}.__getitem__
    three, four = kind.layout(3), kind.layout(4)
    padded = replace(three, padded_to=four)
    assert forecast.mean_s(three) == 0.003
    assert forecast.mean_s(padded) == 0.004
    assert forecast.mean_s(layout_of(3)) == 0.0
    forecast.learn(three, timing(0.005))
    assert forecast.mean_s(three) == 0.005, "what ran here counts"


def test_only_so_many_layouts_are_remembered() -> None:
    """The first that was learnt is the first to be forgotten."""
    forecast = Forecast()
    layouts = [layout_of(size) for size in range(MAX_LAYOUTS + 1)]
    for layout in layouts:
        forecast.learn(layout, timing(1.0))
    assert forecast.least_s(layouts[0]) == 0.0
    assert all(forecast._estimates[layout].mean_s == 1.0 for layout in layouts[1:])


@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=50))
def test_an_estimate_stays_among_what_was_seen(samples: list[float]) -> None:
    """The mean is between the extremes, the likely least below it, and never below nothing."""
    estimate = Estimate(samples[0])
    for sample in samples[1:]:
        estimate.learn(sample)
    assert min(samples) * 0.999 <= estimate.mean_s <= max(samples) * 1.001
    assert 0.0 <= estimate.least_s <= estimate.mean_s <= estimate.most_s


def test_lanes_behind_each_other_are_due_one_after_the_other() -> None:
    """The second lane of a slot begins when the first is seen to be done."""
    rig = Rig(num_slots=1, has_marks=True)
    for _ in range(80):
        rig.submit(b"abcd")
        rig.run()
    assert rig.poller.due_at == inf
    begin = rig.clock()
    rig.submit(b"abcd")
    rig.submit(b"abcd")
    rig.step()
    (layout,) = {asked.request.layout for asked in rig.asked}
    took_s = rig.slots[0].forecast.least_s(layout)
    assert took_s == pytest.approx(0.001, rel=1e-2)  # the launch; copies of 4 bytes are nothing
    assert rig.poller.due_at == pytest.approx(begin + took_s)
    rig.device.run_until(begin + 1.05 * took_s)
    rig.step()
    assert rig.poller.due_at == pytest.approx(rig.clock() + took_s)
    rig.run()
    rig.close()
