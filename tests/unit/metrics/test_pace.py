"""Work in slices: others get their turn, and it ends all the same."""

from __future__ import annotations

import pytest

from headrace.metrics import Metrics
from headrace.metrics.exposition import render
from headrace.metrics.pace import LEAST_SHARE, PAUSE_S, SLICE_S, Pace


class Machine:
    """Time that passes by work and by sleep, of which others take as much as they need."""

    def __init__(self, others_s: float = 0.0) -> None:
        self.now = 0.0
        self.slept_at: list[float] = []
        self._others_s = others_s

    def sleep(self, duration_s: float) -> None:
        """Sleep, and wait for the others."""
        self.slept_at.append(self.now)
        self.now += duration_s + self._others_s

    def work(self, num_pieces: int, piece_s: float) -> None:
        """Do pieces of work in slices."""
        for _ in Pace(lambda: self.now, self.sleep).over(range(num_pieces)):
            self.now += piece_s


def test_nobody_waits_for_longer_than_a_slice_and_a_piece() -> None:
    """Whoever wants to work meanwhile."""
    machine = Machine()
    machine.work(1000, SLICE_S / 7)
    gaps = zip([-PAUSE_S, *machine.slept_at], machine.slept_at, strict=False)
    worked_s = [later - earlier - PAUSE_S for earlier, later in gaps]
    assert max(worked_s) <= SLICE_S * 8 / 7 + 1e-9
    assert len(worked_s) == pytest.approx(1000 / 7, rel=0.15)


def test_little_work_is_done_at_once() -> None:
    """It is no longer than a slice."""
    machine = Machine()
    machine.work(5, SLICE_S / 7)
    assert machine.slept_at == []


@pytest.mark.parametrize("others_s", [0.005, 0.1])
def test_it_ends_on_a_busy_machine(others_s: float) -> None:
    """However long the others keep it waiting, it has its share."""
    machine = Machine(others_s)
    machine.work(2000, SLICE_S / 7)
    worked_s = 2000 * SLICE_S / 7
    assert machine.now < worked_s / LEAST_SHARE + worked_s + others_s


def test_a_page_is_the_same_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, in either format."""
    metrics = Metrics()
    for index in range(5):
        metrics.model(f"m{index}", "1")
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        monkeypatch.setattr("headrace.metrics.pace.SLICE_S", 10.0)
        whole = render(metrics.registry, accept)
        monkeypatch.setattr("headrace.metrics.pace.SLICE_S", 0.0)
        assert render(metrics.registry, accept) == whole


def test_what_is_no_longer_under_way_has_been_counted() -> None:
    """A request that ends while the page is collected is in a gauge or in a counter."""
    metrics = Metrics()
    model = metrics.model("m", "1")
    under_way = [1.0]

    def read() -> float:
        if under_way.pop():  # ends at the last moment before it is looked at
            model.dropped("expired")
        under_way.append(0.0)
        return 0.0

    metrics.add_source("headrace_lanes_in_flight", read, model="m", version="1")
    page = render(metrics.registry)[0].decode()
    assert 'headrace_lanes_in_flight{model="m",version="1"} 0.0' in page
    assert 'headrace_dropped_total{model="m",reason="expired",version="1"} 1.0' in page
