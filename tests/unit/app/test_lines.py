"""Which queue a model gets, and what the log says of it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.engines.kinds import Kinds
from headrace.lines import describe, open_line
from headrace.loader import LoadOptions
from headrace.opening import Opened
from headrace.scheduling.batcher import SingleBatcher
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.scheduling.line import Line
from headrace.slots.capacity import Capacity
from helpers import onnx_models
from helpers.core_rig import Rig
from helpers.loading import Loading
from helpers.onnx_models import save
from helpers.served import served

WHOLE = """backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }
"""
LATEST = 'parameters { key: "headrace.queue_policy" value { string_value: "latest" } }'


def line_of(folder: Path, config: str, model: object = None) -> Line:
    """Load one model with this configuration and return its line."""
    save(model or onnx_models.adds(1), folder / "m/1/model.onnx")  # type: ignore[arg-type]
    (folder / "m/config.pbtxt").write_text(config)
    loading = Loading(folder, options=LoadOptions(default_max_queue_size=5))
    assert loading.load() == 0
    line = loading.catalog.find("m", "").line
    assert loading.close() == []
    return line


@pytest.mark.parametrize(
    ("config", "has_policy"),
    [
        ("", True),  # completion switches batching on
        (WHOLE, False),  # as in Triton, all that is written stays as it is
        (WHOLE + "dynamic_batching { }", True),
        (WHOLE + LATEST, True),
    ],
)
def test_a_queue_has_the_policy_that_is_asked_for(
    tmp_path: Path, config: str, has_policy: bool
) -> None:
    """And a model without one, so short that it runs inline, pays for none."""
    line = line_of(tmp_path, config)
    assert isinstance(line.batcher, DynamicBatcher if has_policy else SingleBatcher)
    assert line.has_policy is has_policy
    assert (line.ordering, line.max_queue_size) == (None, 5)


def test_a_model_that_does_not_run_inline_minds_deadlines_and_sources() -> None:
    """With or without batches: a queue builds up before its slots."""
    model, rig = served("x UINT8[?,1]", "y UINT8[?,1]", "max_batch_size: 8"), Rig(num_slots=2)
    opened = Opened(rig.pool, (), Kinds(rig.engine, 8), Capacity(), None)
    line = open_line(model.spec, opened, rig.metrics, 7)
    assert isinstance(line.batcher, DynamicBatcher)
    assert (line.max_queue_size, line.capacity) == (7, opened.capacity)


def test_order_and_sizes_come_from_the_configuration(tmp_path: Path) -> None:
    """What the batches of warm-up took is known before the first request."""
    line = line_of(
        tmp_path,
        "max_batch_size: 4 dynamic_batching { preserve_ordering: true "
        "default_queue_policy { max_queue_size: 3 } }",
    )
    assert line.ordering is not None
    assert (line.max_queue_size, line.burst_size) == (3, 3)
    assert [rows for rows, _ in line.capacity.table()] == [1, 2, 4]


def test_a_stream_with_a_slot_of_its_own_waits_for_no_company() -> None:
    """There is none; all else of the model's policy holds."""
    batching = BatchingSpec(max_rows=8, max_delay_s=5.0, target_p99_s=1.0, keeps_latest=True)
    model, rig = served("x UINT8[?,1]", "y UINT8[?,1]", "max_batch_size: 8"), Rig(num_slots=2)
    opened = Opened(rig.pool, (), Kinds(rig.engine, 8), Capacity(), batching)
    line = open_line(replace(model.spec, batching=batching), opened, rig.metrics, 7)
    pinned = line.pin()
    assert isinstance(pinned.batcher, DynamicBatcher)
    assert pinned.batcher._spec == replace(batching, max_delay_s=0.0, target_p99_s=0.0)
    assert (pinned.max_queue_size, pinned.has_policy) == (line.max_queue_size, True)
    line.unpin(pinned)
    rig.close()


def test_batching_that_cannot_be_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Text has no place for its outputs before the run, so its requests run alone."""
    with caplog.at_level(logging.WARNING):
        line_of(tmp_path, "max_batch_size: 4 dynamic_batching { }", onnx_models.three())
    assert "m: requests run alone although batching is on" in caplog.text


def test_a_target_that_one_row_misses_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It would refuse everything, and nothing else would say why."""
    target = 'parameters { key: "headrace.target_p99_ms" value { string_value: "%s" } }'
    with caplog.at_level(logging.WARNING):
        line_of(tmp_path, "max_batch_size: 4 dynamic_batching { } " + target % "60000")
        assert "one row alone" not in caplog.text
        line_of(tmp_path, "max_batch_size: 4 dynamic_batching { } " + target % "0.0001")
    assert "m: one row alone took" in caplog.text


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (BatchingSpec(max_delay_s=1.0), "no batches"),
        (
            BatchingSpec(max_rows=8, max_delay_s=5e-4, preserve_ordering=True),
            "batches of up to 8 rows, at most 500 us of waiting for company, replies in order",
        ),
        (
            BatchingSpec(
                max_rows=2,
                target_p99_s=0.0025,
                num_priorities=2,
                keeps_latest=True,
                policies={1: QueuePolicy(max_queue_size=1)},
            ),
            """batches of up to 2 rows, a 99th percentile of 2.5 ms is aimed at, 2 priorities,
            of each source the latest only""",
        ),
    ],
)
def test_the_log_says_how_a_model_queues(spec: BatchingSpec, text: str) -> None:
    """In one line, the bound of the queue always."""
    assert describe(spec, 7) == f"{' '.join(text.split())}, 7 requests may wait"
