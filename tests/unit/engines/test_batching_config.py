"""The policy of a queue is what the configuration says, in seconds and rows."""

from __future__ import annotations

import pytest

from headrace.engines.batching_config import batching_spec, check_batching
from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.engines.model_config import complete
from helpers.model_repository import config_of, signature_of

ONNX = 'name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" '
DYNAMIC = signature_of("x FP32[?,64]", "y FP32[?,10]")
WHOLE = 'input { name: "x" dims: 64 } output { name: "y" dims: 10 } '
LATEST = 'parameters { key: "headrace.queue_policy" value { string_value: "latest" } }'
FIFO = LATEST.replace("latest", "fifo")
WEIGHTS = (
    'parameters { key: "headrace.source_weights" value { string_value: " a=4, b = 1 = 0.5,, " } }'
)
TARGET = 'parameters { key: "headrace.target_p99_ms" value { string_value: "2.5" } }'


def spec_of(text: str) -> BatchingSpec | None:
    config = complete(config_of(ONNX + text), DYNAMIC, auto_complete=True)
    assert list(check_batching(config)) == []
    return batching_spec(config)


def test_all_of_dynamic_batching_is_read() -> None:
    """Microseconds become seconds; sizes rise, each once."""
    spec = spec_of(
        """max_batch_size: 16 dynamic_batching { preferred_batch_size: [ 8, 4, 8 ]
        max_queue_delay_microseconds: 1500 priority_levels: 3 default_priority_level: 2
        default_queue_policy { max_queue_size: 7 default_timeout_microseconds: 250 }
        priority_queue_policy { key: 3 value { timeout_action: DELAY
        allow_timeout_override: true } } }"""
    )
    assert spec == BatchingSpec(
        max_rows=16,
        preferred_rows=(4, 8),
        max_delay_s=0.0015,
        num_priorities=3,
        default_priority=2,
        default_policy=QueuePolicy(max_queue_size=7, default_timeout_s=0.00025),
        policies={3: QueuePolicy(is_delayed=True, may_override=True)},
    )
    assert spec.policy(1).max_queue_size == 7
    assert spec.policy(3).is_delayed
    assert spec.queue_size(100) == 7 + 7 + 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Completion switches it on, as Triton's does, but not where all tensors are written.
        ("max_batch_size: 8", BatchingSpec(max_rows=8, preferred_rows=(8,))),
        ("max_batch_size: 8 " + WHOLE, None),
        ("max_batch_size: 1", None),
        # Without a batch dimension it is the policy of the queue alone.
        ("dims_are_whole", BatchingSpec(max_delay_s=0.001, preserve_ordering=True)),
        # Levels that are off have no policies of their own.
        (
            """max_batch_size: 2 dynamic_batching { default_priority_level: 5
            priority_queue_policy { key: 2 value { max_queue_size: 1 } } }""",
            BatchingSpec(max_rows=2, preferred_rows=(2,)),
        ),
        # Our own parameters do not switch batching on.
        ("max_batch_size: 8 " + WHOLE + TARGET, BatchingSpec(target_p99_s=0.0025)),
        ("max_batch_size: 8 " + WHOLE + LATEST, BatchingSpec(keeps_latest=True)),
        ("max_batch_size: 8 " + WHOLE + FIFO, BatchingSpec()),
        # A source's name may hold "=" and blanks.
        (WHOLE + WEIGHTS, BatchingSpec(source_weights={"a": 4.0, "b = 1": 0.5})),
        (
            "max_batch_size: 8 " + TARGET + LATEST,
            BatchingSpec(max_rows=8, preferred_rows=(8,), target_p99_s=0.0025, keeps_latest=True),
        ),
    ],
)
def test_what_is_left_out(text: str, expected: BatchingSpec | None) -> None:
    """Defaults are Triton's: everything off."""
    if text == "dims_are_whole":
        text = (
            WHOLE.replace("dims: ", "dims: -1 dims: ")
            + "dynamic_batching { max_queue_delay_microseconds: 1000 preserve_ordering: true }"
        )
    assert spec_of(text) == expected
