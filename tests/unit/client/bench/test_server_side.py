"""What a server's statistics grew by."""

from __future__ import annotations

import pytest

from headrace_client.bench.server_side import difference
from headrace_proto.v1 import inference_pb2 as pb


def statistics(
    requests: int, failed: int, rows: int, runs: int, version: str = "1"
) -> pb.ModelStatistics:
    """Each request waited 1 ms and computed 2; runs of two rows each."""
    model = pb.ModelStatistics(
        name="m", version=version, inference_count=rows, execution_count=runs
    )
    stats = model.inference_stats
    for name, each_ms in (("success", 4), ("queue", 1), ("compute_infer", 2)):
        duration = getattr(stats, name)
        duration.count, duration.ns = requests, requests * each_ms * 1_000_000
    stats.fail.count = failed
    batch = model.batch_stats.add(batch_size=2)
    batch.compute_infer.count = runs
    return model


def test_the_difference_is_what_happened_meanwhile() -> None:
    """Counts of all versions, and means of the new requests alone."""
    before = [statistics(100, 3, 100, 50), statistics(7, 0, 7, 7, "2")]
    after = [statistics(130, 5, 160, 80), statistics(7, 0, 7, 7, "2")]
    grown = difference(before, after)
    assert (grown.num_succeeded, grown.num_failed) == (30, 2)
    assert (grown.num_rows, grown.num_executions, grown.rows_per_execution) == (60, 30, 2)
    assert (grown.request_ms, grown.queue_ms, grown.compute_ms) == pytest.approx((4, 1, 2))
    assert (grown.input_ms, grown.output_ms) == (None, None)
    assert grown.executions_by_rows == {2: 30}


def test_nothing_happened() -> None:
    """No mean of nothing; a model that was not there before counts from 0."""
    same = [statistics(5, 0, 5, 5)]
    grown = difference(same, same)
    assert (grown.num_succeeded, grown.queue_ms, grown.rows_per_execution) == (0, None, None)
    assert grown.executions_by_rows == {}
    assert difference([], same).num_succeeded == 5
