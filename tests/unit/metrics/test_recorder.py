"""The recorder loses nothing, tears nothing, and adds up as plain Python does."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from headrace.metrics import BUCKETS_S, STAGES, ModelMetrics, Statistics
from headrace.metrics.recorder import FOLD_AT
from headrace.metrics.statistics import DROP_REASONS

durations_s = st.one_of(
    st.floats(min_value=0.0, max_value=20.0),
    st.sampled_from(BUCKETS_S),  # a bound itself belongs to its bucket
    st.just(math.nan),
)
stage_tuples = st.tuples(*[durations_s] * len(STAGES))


@given(st.lists(stage_tuples, max_size=40))
def test_histograms_equal_prometheus_client(samples: list[Any]) -> None:
    """Folding gives the buckets, counts and sums that prometheus_client's own Histogram gives."""
    model = ModelMetrics("m", "1")
    for sample in samples:
        model.record(sample, 1, 1)
    for index, (counts, sum_s) in enumerate(model.read().stages):
        registry = CollectorRegistry()
        reference = Histogram("reference", "…", registry=registry, buckets=BUCKETS_S)
        for sample in samples:
            if not math.isnan(sample[index]):
                reference.observe(sample[index])
        bounds = [str(bound) for bound in BUCKETS_S] + ["+Inf"]
        expected = [registry.get_sample_value("reference_bucket", {"le": b}) for b in bounds]
        assert counts == expected
        assert sum_s == pytest.approx(registry.get_sample_value("reference_sum"))


@given(st.lists(st.floats(min_value=0.0, max_value=20.0), min_size=1, max_size=200))
def test_histogram_equals_numpy(values: list[float]) -> None:
    """Counts equal numpy.histogram's, whose bins are closed below instead of above."""
    model = ModelMetrics("m", "1")
    for value in values:
        model.record((value,) + (math.nan,) * (len(STAGES) - 1), 1, 1)
    counts, _ = model.read().stages[0]
    mirrored, _ = np.histogram(
        -np.array(values), bins=[-math.inf, *(-b for b in BUCKETS_S[::-1]), 0.0]
    )
    assert np.diff(counts, prepend=0).tolist() == mirrored[::-1].tolist()


@given(
    st.lists(
        st.tuples(stage_tuples, st.integers(1, 64), st.integers(0, 1), st.sampled_from([0, 8, 16])),
        max_size=60,
    )
)
def test_snapshot_adds_up_as_plain_python_does(samples: list[Any]) -> None:
    """Counts are exact and durations are sums of the stages that Triton's names stand for."""
    model = ModelMetrics("m", "1")
    for sample in samples:
        model.record(*sample)
    statistics = model.snapshot()
    receive, stage, queue, h2d, execute, d2h, reply, total = (
        zip(*([0.0 if math.isnan(s) else s for s in sample[0]] for sample in samples), strict=True)
        if samples
        else [()] * len(STAGES)
    )
    expected_s = {
        "success": sum(total),
        "queue": sum(queue),
        "compute_input": sum(stage) + sum(h2d),
        "compute_infer": sum(execute),
        "compute_output": sum(d2h) + sum(reply),
    }
    for name, seconds in expected_s.items():
        tally = getattr(statistics, name)
        assert tally.count == len(samples), name
        assert tally.ns == pytest.approx(seconds * 1e9, abs=2), name
    assert len(receive) == len(samples)
    assert statistics.inference_count == sum(sample[1] for sample in samples)
    assert statistics.execution_count == sum(sample[2] for sample in samples)


@given(
    st.lists(st.tuples(stage_tuples, st.integers(1, 4), st.sampled_from([0, 6, 8])), max_size=60)
)
def test_batch_statistics_count_executions_by_batch_size(samples: list[Any]) -> None:
    """Only the request that carries its batch's execution counts, under the size of the batch."""
    model = ModelMetrics("m", "1")
    expected: dict[int, list[float]] = {}
    for index, (stages, rows, batch_rows) in enumerate(samples):
        executions = index % 2
        model.record(stages, rows, executions, batch_rows)
        if executions:
            totals = expected.setdefault(batch_rows or rows, [0, 0.0])
            totals[0] += 1
            totals[1] += 0.0 if math.isnan(stages[4]) else stages[4]
    batch_stats = model.snapshot().batch_stats
    assert [batch.batch_size for batch in batch_stats] == sorted(expected)
    for batch in batch_stats:
        count, execute_s = expected[batch.batch_size]
        assert batch.compute_infer.count == batch.compute_input.count == count
        assert batch.compute_infer.ns == pytest.approx(execute_s * 1e9, abs=2)


def test_recording_while_reading_loses_and_tears_nothing() -> None:
    """Each reading, taken while two threads record, is whole, and the last one has every sample."""
    model = ModelMetrics("m", "1")
    stages = (0.5,) * len(STAGES)  # sums of halves are exact in binary
    per_thread = 20 * FOLD_AT + 17
    started = threading.Barrier(3)

    def record() -> None:
        started.wait()
        for _ in range(per_thread):
            model.record(stages, 3, 1)

    threads = [threading.Thread(target=record) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait()
    readings = []
    while any(thread.is_alive() for thread in threads):
        readings.append(model.read())
    for thread in threads:
        thread.join()
    readings.append(model.read())
    counts = [reading.statistics.success.count for reading in readings]
    assert counts == sorted(counts)
    assert counts[-1] == 2 * per_thread
    for reading in readings:
        assert_whole(reading.statistics)
        for buckets, sum_s in reading.stages:
            assert buckets[-1] == reading.statistics.success.count
            assert sum_s == 0.5 * buckets[-1]


def assert_whole(statistics: Statistics) -> None:
    count = statistics.success.count
    assert statistics.compute_input.count == count
    assert statistics.compute_infer.count == count
    assert statistics.compute_output.count == count
    assert statistics.inference_count == 3 * count
    assert statistics.execution_count == count
    assert statistics.success.ns == count * 500_000_000
    assert statistics.compute_input.ns == count * 1_000_000_000


def test_pending_samples_are_bounded_without_any_reader() -> None:
    """Recording folds by itself, so that a server that nobody scrapes does not grow."""
    model = ModelMetrics("m", "1")
    for _ in range(10 * FOLD_AT):
        model.record((0.001,) * len(STAGES), 1, 1)
        assert len(model._pending) < FOLD_AT
    assert model.snapshot().success.count == 10 * FOLD_AT


def test_recording_never_waits_for_a_reader() -> None:
    """A thread that records goes on while another holds the fold lock, and nothing is lost."""
    model = ModelMetrics("m", "1")

    def record() -> None:
        for _ in range(3 * FOLD_AT):
            model.record((0.0,) * len(STAGES), 1, 1)

    with model._fold_lock:
        recorder = threading.Thread(target=record)
        recorder.start()
        recorder.join(timeout=10)
        assert not recorder.is_alive()
    assert model.snapshot().success.count == 3 * FOLD_AT


def test_failures_and_drops_are_counted_by_reason() -> None:
    """A drop is a failure in Triton's terms too, under Triton's reason."""
    model = ModelMetrics("m", "1")
    model.fail((math.nan,) * (len(STAGES) - 1) + (0.25,), "BACKEND")
    model.fail((math.nan,) * len(STAGES), "OTHER")
    model.fail(None, "OTHER")
    for reason in DROP_REASONS:
        model.dropped(reason)
    reading = model.read()
    assert reading.failures == {"REJECTED": 9, "CANCELED": 1, "BACKEND": 1, "OTHER": 2}
    assert reading.drops == dict.fromkeys(DROP_REASONS, 1)
    assert (reading.statistics.fail.count, reading.statistics.fail.ns) == (13, 250_000_000)
    assert reading.statistics.success.count == 0


def test_last_inference_is_the_time_of_the_last_record() -> None:
    """The time is that of recording, not that of reading."""
    model = ModelMetrics("m", "1")
    assert model.snapshot().last_inference_ms == 0
    before_ms = int(time.time() * 1000)
    model.record((0.0,) * len(STAGES), 1, 1)
    after_ms = int(time.time() * 1000)
    assert before_ms <= model.snapshot().last_inference_ms <= after_ms
    first = model.snapshot().last_inference_ms
    assert model.snapshot().last_inference_ms == first


def test_answers_from_the_cache_are_successes_without_inference() -> None:
    """They are in the latency of all, in no stage of the device, and torn by no fold."""
    model = ModelMetrics("m", "1")
    run = (1.0,) * len(STAGES)
    num_runs, num_hits = FOLD_AT + 3, 2 * FOLD_AT + 1
    for _ in range(num_runs):
        model.record(run, 2, 1)
        model.cache.miss(0.5)
    for _ in range(num_hits):
        model.answered_from_cache(0.25, 0.125, 0.5)
    reading = model.read()
    counted = reading.statistics
    assert counted.success.count == num_runs + num_hits
    assert counted.success.ns == (num_runs + num_hits // 2 + 0.5) * 1e9
    assert (counted.inference_count, counted.execution_count) == (2 * num_runs, num_runs)
    computed = (counted.compute_input, counted.compute_infer, counted.compute_output)
    assert {tally.count for tally in computed} == {num_runs}
    assert (counted.cache_hit.count, counted.cache_hit.ns) == (num_hits, num_hits * 125_000_000)
    assert (counted.cache_miss.count, counted.cache_miss.ns) == (num_runs, num_runs * 500_000_000)
    assert [batch.compute_infer.count for batch in counted.batch_stats] == [num_runs]
    ends = {stage: counts[-1] for stage, (counts, _) in zip(STAGES, reading.stages, strict=True)}
    all_of_them = num_runs + num_hits
    assert (ends["receive"], ends["total"]) == (all_of_them, all_of_them)
    assert {ends[stage] for stage in STAGES[1:-1]} == {num_runs}
