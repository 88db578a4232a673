"""Which CUDA graphs a model gets: by its configuration, or the usual ones; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.engines.base import Shape, TensorSpec
from headrace.engines.batching_spec import usual_rows
from headrace.errors import ConfigError
from headrace.escape import cited
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from headrace_proto.v1.model_config_pb2 import ModelOptimizationPolicy

FIELD = "optimization.cuda.graph_spec"


def wants_graphs(config: config_pb.ModelConfig, *, default: bool = False) -> bool:
    """Say whether CUDA graphs are switched on.

    Args:
        config: As written, or as completed.
        default: What holds without `optimization.cuda`; `cuda { graphs: false }` is there and off.
    """
    policy = config.optimization
    return policy.cuda.graphs if policy.HasField("cuda") else default


@dataclass(frozen=True, slots=True)
class WantedGraph:
    """A graph that is to be there before the first request.

    Attributes:
        shapes: Of all inputs, as clients send them.
        least_rows: Batches of fewer rows than the shapes have, down to so many, are padded with
            zeros to run it; 0 for none.
        is_usual: Nobody asked for it: it may be left out.
    """

    shapes: tuple[Shape, ...]
    least_rows: int = 0
    is_usual: bool = False


def wanted_graphs(config: config_pb.ModelConfig, inputs: Sequence[TensorSpec]) -> list[WantedGraph]:
    """Return what every `graph_spec` asks for.

    Args:
        config: Completed.
        inputs: The model's, in the order in which the shapes shall be.

    Raises:
        ConfigError: A specification does not fit the model; says which field and why.
    """
    specs = config.optimization.cuda.graph_spec
    return [
        WantedGraph(
            _shapes(spec, f"{FIELD}[{index}]", config.max_batch_size, inputs),
            _least_rows(spec, f"{FIELD}[{index}]", config.max_batch_size),
        )
        for index, spec in enumerate(specs)
    ]


def usual_graphs(config: config_pb.ModelConfig, inputs: Sequence[TensorSpec]) -> list[WantedGraph]:
    """Return graphs for a model that batches and names none: every number of rows fits one.

    Their rows double from 1 to `max_batch_size`, which is one too, as are preferred batch sizes.
    Fewer rows are padded up to the next.

    Args:
        config: Completed.
        inputs: The model's, in the order in which the shapes shall be.

    Returns:
        By falling number of rows; none where the other dimensions are not fixed.
    """
    most = config.max_batch_size
    if most < 2 or any(None in spec.shape[1:] or not spec.shape for spec in inputs):
        return []
    preferred = config.dynamic_batching.preferred_batch_size
    rows = sorted(usual_rows(most, preferred), reverse=True)
    return [
        WantedGraph(tuple(_shape(each, (size,), {}, FIELD) for each in inputs), less + 1, True)
        for size, less in pairwise([*rows, 0])
    ]


def _least_rows(
    spec: ModelOptimizationPolicy.Cuda.GraphSpec, field: str, max_batch_size: int
) -> int:
    if not spec.HasField("graph_lower_bound") or not max_batch_size:
        return 0
    rows = spec.graph_lower_bound.batch_size
    if rows not in range(1, spec.batch_size + 1):
        raise ConfigError(
            f"is {rows}, expected 1 to {spec.batch_size}, the batch_size of the graph",
            field=f"{field}.graph_lower_bound.batch_size",
        )
    return rows


def _shapes(
    spec: ModelOptimizationPolicy.Cuda.GraphSpec,
    field: str,
    max_batch_size: int,
    inputs: Sequence[TensorSpec],
) -> tuple[Shape, ...]:
    rows = spec.batch_size
    allowed = range(1, max_batch_size + 1) if max_batch_size else range(1)
    if rows not in allowed:
        expected = f"1 to {max_batch_size}" if max_batch_size else "0"
        raise ConfigError(
            f"is {rows}, expected {expected}, as max_batch_size is {max_batch_size}",
            field=f"{field}.batch_size",
        )
    dims = {name: tuple(shape.dim) for name, shape in spec.input.items()}
    if unknown := sorted(dims.keys() - {each.name for each in inputs}):
        raise ConfigError(f"there is no input {cited(repr(unknown[0]))}", field=f"{field}.input")
    head = (rows,) if max_batch_size else ()
    return tuple(_shape(each, head, dims, f"{field}.input") for each in inputs)


def _shape(tensor: TensorSpec, head: Shape, dims: Mapping[str, Shape], field: str) -> Shape:
    """Return one input's shape: what is said of it, else its own where that is fixed."""
    batch = () if tensor.is_shape_tensor else head
    wanted = tensor.shape[len(batch) :]
    if tensor.name not in dims:
        fixed = tuple(size for size in wanted if size is not None)
        if len(fixed) < len(wanted):
            shown = [-1 if size is None else size for size in wanted]
            raise ConfigError(
                f"needs the shape of input {tensor.name!r}, whose dims {shown} are not fixed",
                field=field,
            )
        return (*batch, *fixed)
    came = dims[tensor.name]
    fits = len(came) == len(wanted) and all(
        size >= 0 and other in (None, size) for size, other in zip(came, wanted, strict=True)
    )
    if not fits:
        shown = [-1 if size is None else size for size in wanted]
        raise ConfigError(
            f"gives input {tensor.name!r} the dims {list(came)}, expected {shown}", field=field
        )
    return (*batch, *came)
