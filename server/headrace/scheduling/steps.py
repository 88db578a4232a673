"""A step of an ensemble at run time: the model version that serves it, and requests to that.

The tensors of an ensemble have the shapes that clients of its models see. Where one model batches
and the other does not, a tensor may have to gain or lose a batch dimension of 1 on its way, as in
Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headrace.engines.base import Layout, Shape, TensorSpec
from headrace.engines.ensemble_plan import EnsembleStep
from headrace.engines.model_spec import ModelSpec
from headrace.errors import RequestError
from headrace.scheduling.line import Line
from headrace.scheduling.request import Buffer, Request
from headrace.slots.batch import Output

if TYPE_CHECKING:
    from headrace.scheduling.ensemble_run import Run

MAX_LAYOUTS: Final = 64  # a step's own; cameras need one each, and the model keeps 512

Tensor = tuple[Shape, Buffer]


class StepModel(Protocol):
    """One version of a model, as a step sees it."""

    spec: ModelSpec  # its inputs in the engine's order
    line: Line

    @property
    def is_ready(self) -> bool:
        """Whether a request could be answered now."""

    def plan(
        self, shapes: Sequence[Shape], sizes: Sequence[int], values: Sequence[bytes] = ()
    ) -> Layout:
        """Lay out a call, as the front door has it done."""


class Fit(NamedTuple):
    """How a step's call lies in a block."""

    layout: Layout
    rows: int


class BoundStep:
    """A step and the version that serves it."""

    def __init__(self, step: EnsembleStep, model: StepModel) -> None:
        self.model = model
        spec = model.spec
        self.places = tuple(step.inputs[each.name] for each in spec.inputs)  # in the spec's order
        self._outputs = tuple(
            (step.outputs[each.name], spec.output_maps[index])
            for index, each in enumerate(spec.outputs)
            if each.name in step.outputs
        )
        self._has_values = any(each.is_shape_tensor for each in spec.inputs)
        self._fits: dict[tuple[tuple[Shape, ...], tuple[int, ...]], Fit] = {}

    @property
    def is_current(self) -> bool:
        """Whether the version still takes requests."""
        return self.model.is_ready and not self.model.line.is_retired

    def fit(self, tensors: Sequence[Tensor]) -> Fit:
        """Lay a call out.

        Args:
            tensors: The step's inputs, in the spec's order.

        Raises:
            RequestError: The model does not take them.
        """
        key = (tuple(each[0] for each in tensors), tuple(len(each[1]) for each in tensors))
        fit = None if self._has_values else self._fits.get(key)
        if fit is None:
            fit = self._fit(*key, tensors)
            if len(self._fits) >= MAX_LAYOUTS:
                self._fits.clear()
            self._fits[key] = fit
        return fit

    def results(self, outputs: Sequence[Output]) -> Iterator[tuple[int, Tensor]]:
        """Yield the tensors of the ensemble that a run gave, with their places."""
        for place, output_map in self._outputs:
            shape, data = outputs[output_map.index]
            yield place, (output_map.to_client(shape), data)

    def _fit(self, came: Sequence[Shape], sizes: Sequence[int], tensors: Sequence[Tensor]) -> Fit:
        spec = self.model.spec
        has_rows = spec.max_batch_size > 0
        shapes, rows = [], set()
        for shape, want in zip(came, spec.inputs, strict=True):
            shapes.append(fitted(shape, want, has_rows=has_rows and not want.is_shape_tensor))
            if has_rows and not want.is_shape_tensor:
                rows.add(shapes[-1][0])
        if len(rows) > 1 or not all(1 <= count <= spec.max_batch_size for count in rows):
            raise RequestError(
                f"got {' and '.join(map(str, sorted(rows)))} rows for model '{spec.name}', "
                f"expected 1 to {spec.max_batch_size}, the same in all inputs"
            )
        pairs = zip(spec.inputs, tensors, strict=True)
        values = [bytes(data) for want, (_, data) in pairs if want.is_shape_tensor]
        return Fit(self.model.plan(shapes, sizes, values), rows.pop() if rows else 1)


def fitted(shape: Shape, want: TensorSpec, *, has_rows: bool) -> Shape:
    """Return the shape with which a model takes a tensor.

    Args:
        shape: The tensor's.
        want: The model's input, the batch dimension included.
        has_rows: Whether the first dimension of `want` is the batch.

    Raises:
        RequestError: It does not take it.
    """
    if _is(shape, want.shape):
        return shape
    if has_rows and _is(shape, want.shape[1:]):
        return (1, *shape)
    if not has_rows and shape[:1] == (1,) and _is(shape[1:], want.shape):
        return shape[1:]
    expected = [-1 if size is None else size for size in want.shape]
    raise RequestError(
        f"unexpected shape for input '{want.name}': expected {expected}, got {list(shape)}"
    )


def _is(shape: Shape, wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(
        size in (None, got) for got, size in zip(shape, wanted, strict=True)
    )


class StepRequest(Request):
    """What an ensemble asks one of its models.

    Attributes:
        run: The ensemble's request that it belongs to.
        index: The step's.
        bound: With the version that it was made for.
    """

    __slots__ = ("bound", "index", "run")

    is_step = True
    run: Run
    index: int
    bound: BoundStep


def ask(
    run: Run,
    index: int,
    bound: BoundStep,
    now: float,
    on_end: Callable[[Request, Sequence[Output] | None, Exception | None], None],
) -> StepRequest:
    """Make the request of a step; deadline, priority, timeout and source are the ensemble's.

    Raises:
        RequestError: The model does not take the tensors.
    """
    parent, tensors = run.request, [run.tensors[place] for place in bound.places]
    layout, rows = bound.fit(tensors)
    batching = bound.model.spec.batching
    num_levels = 1 if batching is None else batching.num_priorities
    line = bound.model.line
    request = StepRequest(
        line,
        layout,
        [data for _, data in tensors],
        rows=rows,
        deadline=parent.deadline,
        received_at=now,
        parsed_at=now,
        on_end=on_end,
        tag=parent.tag,
        priority=parent.priority if line.is_ensemble or parent.priority <= num_levels else 0,
        timeout_s=parent.timeout_s,
        source=parent.source,
    )
    request.run, request.index, request.bound = run, index, bound
    return request


def count(request: StepRequest, error: Exception | None, now: float) -> None:
    """Count a request that has ended, as the front door counts those of clients."""
    if error is not None:
        request.record_failure(error)
        return
    stages, timing = request.record(now), request.timing
    if stages is not None and timing is not None:
        request.run.account(stages, timing.ended_at)
