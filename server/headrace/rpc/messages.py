"""ModelStatistics, ModelConfig and tensor metadata as messages."""

from __future__ import annotations

import json

from headrace.engines.base import TensorSpec
from headrace.engines.batching_config import SERVICE_SECONDS
from headrace.link.base import Served
from headrace.metrics import BatchStatistics, Tally
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.v1 import model_config_pb2 as config_pb


def statistics_message(served: Served) -> pb.ModelStatistics:
    """Return the counters of one model version, of one moment."""
    statistics = served.line.metrics.snapshot()
    return pb.ModelStatistics(
        name=served.spec.name,
        version=str(served.spec.version),
        last_inference=statistics.last_inference_ms,
        inference_count=statistics.inference_count,
        execution_count=statistics.execution_count,
        inference_stats=pb.InferStatistics(
            success=_duration(statistics.success),
            fail=_duration(statistics.fail),
            queue=_duration(statistics.queue),
            compute_input=_duration(statistics.compute_input),
            compute_infer=_duration(statistics.compute_infer),
            compute_output=_duration(statistics.compute_output),
            cache_hit=_duration(statistics.cache_hit),
            cache_miss=_duration(statistics.cache_miss),
        ),
        batch_stats=[_batch(batch) for batch in statistics.batch_stats],
    )


def config_message(served: Served) -> config_pb.ModelConfig:
    """Return a model's configuration, with what its batches take as a parameter.

    It is a JSON object, seconds by rows: clients of Triton pass over parameters that they do not
    know. A model of which nothing was measured has none.
    """
    table = served.line.capacity.table()
    if not table:
        return served.config
    config = config_pb.ModelConfig()
    config.CopyFrom(served.config)
    seconds = {str(rows): float(f"{took_s:.4g}") for rows, took_s in table}
    config.parameters[SERVICE_SECONDS].string_value = json.dumps(seconds)
    return config


def tensor_metadata(spec: TensorSpec) -> pb.ModelMetadataResponse.TensorMetadata:
    """Describe a tensor; a dynamic dimension is -1."""
    return pb.ModelMetadataResponse.TensorMetadata(
        name=spec.name,
        datatype=spec.datatype,
        shape=[-1 if dim is None else dim for dim in spec.shape],
    )


def _duration(tally: Tally) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=tally.count, ns=tally.ns)


def _batch(batch: BatchStatistics) -> pb.InferBatchStatistics:
    return pb.InferBatchStatistics(
        batch_size=batch.batch_size,
        compute_input=_duration(batch.compute_input),
        compute_infer=_duration(batch.compute_infer),
        compute_output=_duration(batch.compute_output),
    )
