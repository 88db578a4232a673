"""The simulation is right where queueing theory knows the answer, and always the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from headrace.scheduling.batcher import SingleBatcher
from helpers.delay_batcher import DelayBatcher
from load.simulate.arrivals import Arrival, arrivals, cameras, constant, on_off, poisson
from load.simulate.core import Ending, HostCost, MakeBatcher, VirtualCore
from load.simulate.curves import CURVES, ServiceCurve, read_curve
from load.simulate.device import Share, SharedDevice
from load.simulate.figures import figures_of
from load.simulate.slots import Draw, exponential, noisy

ONE_MS = ServiceCurve("one_ms", ((1, 1e-3),), max_rows=1, spread=0.5)
UNBOUNDED = 1_000_000


def alone(*_: object) -> SingleBatcher:
    return SingleBatcher()


def play(coming: Sequence[Arrival], make: MakeBatcher = alone, **options: object) -> list[Ending]:
    """Play one run of `ONE_MS`, or of another curve."""
    curve = options.pop("curve", ONE_MS)
    core = VirtualCore(curve, make, max_queue_size=UNBOUNDED, **options)  # type: ignore[arg-type]
    begin_s = core.clock()
    endings = core.play(coming)
    core.close()
    assert core.blocks.num_leased == 0
    for ending in endings:  # as if the run had begun at zero
        ending.ended_s -= begin_s
        ending.arrival = ending.arrival._replace(at_s=ending.arrival.at_s - begin_s)
    return endings


@pytest.mark.parametrize("load", [0.3, 0.6])
@pytest.mark.parametrize(("draw", "moment"), [(None, 1.0), (exponential, 2.0)])
def test_mean_waits_are_those_of_pollaczek_and_khinchine(
    load: float, draw: Callable[[ServiceCurve, int], Draw] | None, moment: float
) -> None:
    """M/D/1 and M/M/1: the mean wait is load × E[S²] / (2 (1 - load) E[S])."""
    took_s: list[float] = []
    takes_s = draw(ONE_MS, 1) if draw else ONE_MS.mean_s

    def noted(rows: int) -> float:
        took_s.append(takes_s(rows))
        return took_s[-1]

    endings = play(arrivals("poisson", load * 1000, 20.0, seed=1), draw=noted)
    wait_s = np.mean([ending.latency_s for ending in endings]) - np.mean(took_s)
    assert wait_s * 1e3 == pytest.approx(load * moment / (2 * (1 - load)), rel=0.2)  # 3 deviations


def test_each_wait_is_lindleys() -> None:
    """A single server in order of arrival: who comes waits for what is left of those before."""
    coming = arrivals("poisson", 800.0, 3.0, seed=1)
    took, same = noisy(ONE_MS, 7), noisy(ONE_MS, 7)
    free_s = 0.0
    for ending in play(coming, draw=took):
        free_s = max(free_s, ending.arrival.at_s) + same(1)
        assert ending.ended_s == pytest.approx(free_s, abs=1e-9)


def test_a_run_is_decided_by_its_seed() -> None:
    """Nothing of the machine or of another run shows in it."""
    curve = CURVES["resnet50_h200"]

    def ended(seed: int) -> list[float]:
        coming = arrivals("on/off", 1500.0, 0.5, seed)
        run = play(coming, curve=curve, draw=noisy(curve, seed), num_slots=2)
        return [ending.ended_s for ending in run]

    assert ended(1) == ended(1)
    assert ended(1) != ended(2)


def test_what_the_host_does_takes_its_time() -> None:
    """A host that needs 2 ms a request answers every 2 ms, however fast the device is."""
    coming = [Arrival(0.0) for _ in range(10)]
    endings = play(coming, host=HostCost(accept_s=1e-3, reply_s=1e-3))
    assert max(ending.ended_s for ending in endings) == pytest.approx(20e-3, abs=2e-3)


def test_a_device_in_turns_does_one_launch_after_the_other() -> None:
    """Without speed-ups streams do not overlap; the device is busy for as long as they compute."""
    device = SharedDevice(Share())
    ends = launch(device, [3.0, 1.0])
    assert ends == [3.0, 4.0]
    assert device.share.busy_s == 4.0


def test_a_shared_device_gives_every_launch_its_share() -> None:
    """Two at once are 1.5 times as fast as one: each at 0.75, then the longer one alone."""
    device = SharedDevice(Share({1: 1.0, 2: 1.5}.__getitem__))
    ends = launch(device, [3.0, 1.5])
    assert ends == pytest.approx([3.5, 2.0])  # 1.5 / 0.75 = 2; then 1.5 of 3 are left
    assert device.share.busy_s == pytest.approx(3.5)


def launch(device: SharedDevice, work_s: Sequence[float]) -> list[float]:
    """Launch on streams of their own at once; return when each was done."""
    ends = [math.nan] * len(work_s)
    for index, each_s in enumerate(work_s):
        stream = device.open_stream()
        device.launch_s = each_s
        stream.launch(lambda index=index: ends.__setitem__(index, device.now))  # type: ignore[misc]
    while device.step_before(math.inf):
        pass
    return ends


def test_arrivals_are_as_many_as_was_said() -> None:
    """The mean rates agree, and bursts are bursts."""
    rng = np.random.default_rng(1)
    for process in (poisson, constant, on_off):
        assert len(process(1000.0, 100.0, rng)) == pytest.approx(100_000, rel=0.06)

    def dispersion(times: np.ndarray) -> float:
        counts = np.histogram(times, np.arange(0, 100, 0.05))[0]
        return float(counts.var() / counts.mean())

    assert dispersion(poisson(1000.0, 100.0, rng)) == pytest.approx(1.0, abs=0.15)
    assert dispersion(on_off(1000.0, 100.0, rng)) > 10


def test_a_flood_leaves_the_other_cameras_where_they_were() -> None:
    """So that two runs differ in the flood alone."""
    calm, flooded = cameras([25.0] * 8, 2.0, 1), cameras([250.0] + [25.0] * 7, 2.0, 1)

    def others(frames: Sequence[Arrival]) -> list[Arrival]:
        return [frame for frame in frames if frame.source != "camera 0"]

    assert others(calm) == others(flooded)
    assert len(flooded) - len(calm) == pytest.approx(450, abs=1)


def test_figures_are_of_what_came_after_the_start() -> None:
    """Half of them in time, by hand: 1 ms of service each, two at once, a target of 1.5 ms."""
    coming = [Arrival(at_s) for at_s in np.repeat(np.arange(0.0, 1.0, 0.01), 2)]
    core = VirtualCore(ONE_MS, alone)
    figures = figures_of(core.play(coming), core, duration_s=1.0, target_s=1.5e-3)
    core.close()
    assert figures.offered_per_s == pytest.approx(200)
    assert figures.good_share == pytest.approx(0.5)
    assert figures.answered_share == 1.0
    assert (figures.p50_s, figures.p99_s) == pytest.approx((1.5e-3, 2e-3))
    assert figures.batch_rows == {1: 200}
    assert figures.busy_share == pytest.approx(0.2, rel=0.02)


def test_curves_are_read_by_name_or_from_a_file(tmp_path: Path) -> None:
    """The table that the server measured can be fed in."""
    file = tmp_path / "curve.json"
    file.write_text('{"name": "mine", "points": [[8, 0.003], [1, 0.001]], "max_rows": 8}')
    curve = read_curve(str(file))
    assert (curve.mean_s(1), curve.mean_s(8)) == (0.001, 0.003)
    assert curve.mean_s(15) == pytest.approx(0.005)
    assert read_curve("mlp_cpu") is CURVES["mlp_cpu"]
    with pytest.raises(ValueError, match="no file and no curve"):
        read_curve("nothing")


def test_batches_are_those_of_a_plain_recursion() -> None:
    """Two lanes, whoever waits when one comes free, at most eight together: latencies by hand."""
    curve = ServiceCurve("eight", ((1, 1e-3), (8, 2e-3)), max_rows=8)
    coming = arrivals("on/off", 3000.0, 2.0, seed=5)
    endings = play(coming, lambda *_: DelayBatcher(8), curve=curve)
    times = [arrival.at_s for arrival in coming]
    expected: list[float] = []
    ends = [0.0, 0.0]  # of the last two batches: the next one is bound when the one before ends
    while len(expected) < len(times):
        bound_s = max(times[len(expected)], ends[-2])
        rows = sum(at_s <= bound_s for at_s in times[len(expected) : len(expected) + 8])
        ends.append(max(bound_s, ends[-1]) + curve.mean_s(rows))
        expected += [ends[-1]] * rows
    assert [ending.ended_s for ending in endings] == pytest.approx(expected, abs=1e-9)
    assert max(ending.latency_s for ending in endings) > 10e-3, "the bursts must have been felt"
