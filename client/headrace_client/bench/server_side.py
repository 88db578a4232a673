"""What the server counted meanwhile: the difference of its statistics, before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace_client.errors import HeadraceClientError
from headrace_client.sync import Client
from headrace_proto.v1 import inference_pb2 as pb


@dataclass(frozen=True)
class ServerFigures:
    """What one model's statistics grew by; mean durations of a request.

    Attributes:
        num_succeeded: Requests.
        num_failed: Requests.
        num_rows: Rows of the requests that succeeded ("inferences" of the protocol).
        num_executions: Runs of the model.
        rows_per_execution: Mean; None without any.
        request_ms: From arrival to reply, at the server.
        queue_ms: Of that, waiting.
        input_ms: Bringing the inputs to where the model computes.
        compute_ms: The computation.
        output_ms: Bringing the outputs back.
        executions_by_rows: Runs by their number of rows.
    """

    num_succeeded: int
    num_failed: int
    num_rows: int
    num_executions: int
    rows_per_execution: float | None
    request_ms: float | None
    queue_ms: float | None
    input_ms: float | None
    compute_ms: float | None
    output_ms: float | None
    executions_by_rows: dict[int, int]


Statistics = Sequence[pb.ModelStatistics]


def statistics(client: Client, model: str, version: str) -> Statistics | str:
    """Ask for a model's statistics; where the server gives none, say why."""
    try:
        return client.statistics(model, version)
    except HeadraceClientError as error:
        return str(error)


def difference(before: Statistics, after: Statistics) -> ServerFigures:
    """Return what all versions together grew by."""
    num_rows = _grown(before, after, lambda model: model.inference_count)
    num_executions = _grown(before, after, lambda model: model.execution_count)

    def mean_ms(name: str) -> float | None:
        count = _grown(before, after, lambda model: getattr(model.inference_stats, name).count)
        ns = _grown(before, after, lambda model: getattr(model.inference_stats, name).ns)
        return ns / count / 1e6 if count > 0 else None

    return ServerFigures(
        num_succeeded=_grown(before, after, lambda model: model.inference_stats.success.count),
        num_failed=_grown(before, after, lambda model: model.inference_stats.fail.count),
        num_rows=num_rows,
        num_executions=num_executions,
        rows_per_execution=num_rows / num_executions if num_executions > 0 else None,
        request_ms=mean_ms("success"),
        queue_ms=mean_ms("queue"),
        input_ms=mean_ms("compute_input"),
        compute_ms=mean_ms("compute_infer"),
        output_ms=mean_ms("compute_output"),
        executions_by_rows=_batches(before, after),
    )


def _grown(before: Statistics, after: Statistics, read: Callable[[pb.ModelStatistics], int]) -> int:
    return sum(map(read, after)) - sum(map(read, before))


def _batches(before: Statistics, after: Statistics) -> dict[int, int]:
    counts: Counter[int] = Counter()
    for models, sign in ((after, 1), (before, -1)):
        for model in models:
            for batch in model.batch_stats:
                counts[batch.batch_size] += sign * batch.compute_infer.count
    return {rows: count for rows, count in sorted(counts.items()) if count > 0}
