"""Statistics, configurations and tensor metadata as messages."""

from __future__ import annotations

import json
from math import nan

import pytest

from headrace.engines.base import TensorSpec
from headrace.rpc.messages import config_message, statistics_message, tensor_metadata
from helpers.served import served

# receive, stage, queue, h2d, execute, d2h, reply, total
ON_A_GPU = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.127)
ON_A_CPU = (0.001, 0.002, 0.004, nan, 0.016, nan, 0.064, 0.087)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((None, 3, None), [-1, 3, -1]), ((), []), ((0, 5), [0, 5])],
)
def test_tensor_metadata(shape: tuple[int | None, ...], expected: list[int]) -> None:
    """A free dimension is -1."""
    message = tensor_metadata(TensorSpec("x", "FP16", shape))
    assert (message.name, message.datatype, list(message.shape)) == ("x", "FP16", expected)


@pytest.mark.parametrize(
    ("stages", "computes_ms"),
    [(ON_A_GPU, (2 + 8, 16, 32 + 64)), (ON_A_CPU, (2, 16, 64))],
    ids=["copies", "no copies"],
)
def test_statistics(stages: tuple[float, ...], computes_ms: tuple[int, ...]) -> None:
    """Each duration is what its name says, and the three compute counts are the same."""
    model = served("x FP32[?,1]", "y FP32[?,1]", name="m", version=3)
    metrics = model.line.metrics
    metrics.record(stages, 2, 1)
    metrics.record(stages, 5, 1)
    metrics.fail(None, "BACKEND")
    metrics.dropped("expired")
    message = statistics_message(model)
    assert (message.name, message.version) == ("m", "3")
    assert (message.inference_count, message.execution_count) == (7, 2)
    assert message.last_inference > 1_600_000_000_000  # milliseconds since 1970
    stats = message.inference_stats
    found = {
        part: (getattr(stats, part).count, getattr(stats, part).ns)
        for part in ("success", "queue", "compute_input", "compute_infer", "compute_output")
    }
    ms = {"success": round(stages[-1] * 1000), "queue": 4}
    ms |= dict(zip(("compute_input", "compute_infer", "compute_output"), computes_ms, strict=True))
    assert found == {part: (2, pytest.approx(2 * ms[part] * 1e6)) for part in found}
    assert stats.fail.count == 2
    assert (stats.cache_hit.count, stats.cache_miss.count) == (0, 0)
    batches = {batch.batch_size: batch.compute_infer for batch in message.batch_stats}
    assert {size: infer.count for size, infer in batches.items()} == {2: 1, 5: 1}
    assert batches[5].ns == pytest.approx(16e6)


def test_statistics_of_a_model_that_nobody_has_asked() -> None:
    """Zeros, and no batch sizes."""
    message = statistics_message(served("x FP32[?,1]", "y FP32[?,1]"))
    assert (message.inference_count, message.last_inference, len(message.batch_stats)) == (0, 0, 0)
    assert message.inference_stats.success.count == 0


def test_a_configuration_tells_what_batches_take() -> None:
    """By rows, as last seen; the rest is the configuration, which itself stays as it is."""
    model = served("x FP32[?,1]", "y FP32[?,1]", "max_batch_size: 8")
    assert config_message(model) == model.config
    for rows, took_s in ((8, 0.00251234), (1, 0.001)):
        model.line.capacity.learn(rows, took_s)
    told = config_message(model)
    parameter = told.parameters["headrace.service_seconds"].string_value
    assert json.loads(parameter) == {"1": 0.001, "8": 0.002512}
    del told.parameters["headrace.service_seconds"]
    assert told == model.config
