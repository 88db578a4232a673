"""Fits the shapes that were asked for, or a config.pbtxt's, to the inputs of a network: pure.

An input without dynamic dimensions needs no bounds. Of the others every profile must say all, since
TensorRT tells only at the end of a build what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.building.notation import Bounds, Shapes, checked_bounds, written
from headrace.engines.base import Shape
from headrace.errors import ConfigError
from headrace_proto.v1 import model_config_pb2 as config_pb


@dataclass(frozen=True, slots=True)
class NetworkTensor:
    """An input or output of a parsed network; -1 is a dynamic dimension."""

    name: str
    datatype: str  # TensorRT's name
    shape: Shape
    is_shape_tensor: bool

    @property
    def wants_bounds(self) -> bool:
        """True when a profile must say something about it."""
        return self.is_shape_tensor or -1 in self.shape


def fit(inputs: Sequence[NetworkTensor], profiles: Sequence[Shapes]) -> tuple[Shapes, ...]:
    """Return each profile's bounds of just the inputs that want some, in the network's order.

    Raises:
        ConfigError: An input is not the network's, is left out, or cannot have that shape.
    """
    return tuple(_fit_one(inputs, shapes, index) for index, shapes in enumerate(profiles))


def _fit_one(inputs: Sequence[NetworkTensor], shapes: Shapes, index: int) -> Shapes:
    names = [each.name for each in inputs]
    for name in shapes:
        if name not in names:
            raise ConfigError(
                f"profile {index}: there is no input {name!r}; the model has "
                f"{', '.join(map(repr, names))}"
            )
    for each in inputs:
        if each.name in shapes:
            _check_fits(each, shapes[each.name], index)
        elif each.wants_bounds:
            raise ConfigError(f"profile {index} leaves out {_wanted(each)}")
    return {each.name: shapes[each.name] for each in inputs if each.wants_bounds}


def _check_fits(tensor: NetworkTensor, bounds: Bounds, index: int) -> None:
    if tensor.is_shape_tensor:
        return  # its values, whose number TensorRT checks
    for bound in (bounds.minimum, bounds.optimum, bounds.maximum):
        fits = len(bound) == len(tensor.shape) and all(
            own in (-1, size) for own, size in zip(tensor.shape, bound, strict=True)
        )
        if not fits:
            raise ConfigError(
                f"profile {index}: {written(bound)} for the input {tensor.name!r}, which has the "
                f"shape {written(tensor.shape)}; only dimensions shown as ? can be chosen"
            )


def from_config(
    inputs: Sequence[NetworkTensor], config: config_pb.ModelConfig, path: str
) -> tuple[Shapes, ...]:
    """Return the one profile that a model's configuration asks for: 1 to max_batch_size rows.

    The optimum is the largest preferred batch size, else max_batch_size: that is where a busy
    server spends its time.

    Raises:
        ConfigError: It does not say the size of a dynamic dimension.
    """
    by_name = {each.name: each for each in config.input}
    found = {
        each.name: _bounds(each, by_name.get(each.name), config, path)
        for each in inputs
        if each.wants_bounds
    }
    return (found,)


def _bounds(
    tensor: NetworkTensor,
    said: config_pb.ModelInput | None,
    config: config_pb.ModelConfig,
    path: str,
) -> Bounds:
    rows = config.max_batch_size
    best_rows = max([*config.dynamic_batching.preferred_batch_size, 0]) or rows
    dims: list[int] = []
    if said is not None:
        dims = list(said.reshape.shape if said.HasField("reshape") else said.dims)
        dims = [-1, *dims] if rows > 0 else dims
    if dims and len(dims) != len(tensor.shape):
        raise ConfigError(
            f"{written(dims)} with the batch dimension, but the model's input {tensor.name!r} is "
            f"{written(tensor.shape)}",
            path=path,
            field="input.dims",
        )
    low, best, high = (list(tensor.shape) for _ in range(3))
    for axis, size in enumerate(tensor.shape):
        if size != -1:
            continue
        if axis == 0 and rows > 0:
            low[0], best[0], high[0] = 1, best_rows, rows
        elif dims and dims[axis] > 0:
            low[axis] = best[axis] = high[axis] = dims[axis]
        else:
            raise ConfigError(f"does not fix {_wanted(tensor)}", path=path, field="input.dims")
    if tensor.is_shape_tensor:
        raise ConfigError(f"cannot say the values of {_wanted(tensor)}", path=path)
    about = f"{path}: input {tensor.name!r}"
    return checked_bounds(tuple(low), tuple(best), tuple(high), about)


def _wanted(tensor: NetworkTensor) -> str:
    if tensor.is_shape_tensor:
        what = f"the shape tensor {tensor.name!r}"
        return f"{what}: give the bounds of its values with --min, --opt and --max"
    examples = " ".join(
        f"{flag} {tensor.name}:{written(size if size >= 0 else rows for size in tensor.shape)}"
        for flag, rows in (("--min", 1), ("--opt", 8), ("--max", 32))
    )
    return (
        f"the input {tensor.name!r} of shape {written(tensor.shape)}: give the range of its "
        f"dynamic dimensions, for example {examples}"
    )


def require(inputs: Sequence[NetworkTensor]) -> None:
    """Refuse inputs that want bounds, where there is nothing that could give them.

    Raises:
        ConfigError: Names the first such input, and the flags.
    """
    for each in inputs:
        if each.wants_bounds:
            raise ConfigError(
                f"no shapes for {_wanted(each)}; or put a config.pbtxt with max_batch_size beside "
                "the model"
            )


def describe(shapes: Mapping[str, Bounds]) -> str:
    """Write one profile on a line."""
    return ", ".join(
        f"{name} {written(each.minimum)} … {written(each.optimum)} … {written(each.maximum)}"
        for name, each in shapes.items()
    )
