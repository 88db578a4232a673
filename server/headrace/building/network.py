"""Parses an ONNX file into a TensorRT network, and tells which nodes TensorRT cannot take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.building.shapes import NetworkTensor
from headrace.building.tools import Tools
from headrace.errors import ConfigError

MAX_LISTED: Final = 8
"""Nodes named in one text; a model of an unknown operator may have hundreds of it."""


@dataclass(frozen=True, slots=True)
class Network:
    """A parsed network and what a report tells of it."""

    definition: Any
    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    is_strongly_typed: bool
    datatypes: Mapping[str, int]  # TensorRT's name → how many results of layers have it


def create_network(tools: Tools, *, strongly_typed: bool) -> Any:
    """Make an empty network; its flags are asked for by name, since their numbers moved in 11.0."""
    flags = 0
    if strongly_typed:
        flags = 1 << int(tools.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    return tools.builder.create_network(flags)


def parse(tools: Tools, definition: Any, path: Path) -> Network:
    """Parse a file, and the weights beside it, into a network.

    Raises:
        ConfigError: It is no ONNX model, or has nodes that TensorRT cannot take; names them.
    """
    if not path.is_file():
        raise ConfigError("is not there, or is no file", path=str(path))
    parser = tools.trt.OnnxParser(definition, tools.logger)
    is_parsed = parser.parse_from_file(str(path))
    faults = [parser.get_error(index) for index in range(parser.num_errors)]
    if not is_parsed or faults:
        raise ConfigError(_refusal(tools, faults), path=str(path))
    inputs = [definition.get_input(index) for index in range(definition.num_inputs)]
    outputs = [definition.get_output(index) for index in range(definition.num_outputs)]
    if not outputs:  # an empty file is an ONNX model without anything
        raise ConfigError("has no outputs: is it an ONNX model?", path=str(path))
    return Network(
        definition=definition,
        inputs=tuple(_tensor(each, path) for each in inputs),
        outputs=tuple(_tensor(each, path) for each in outputs),
        is_strongly_typed=definition.get_flag(
            tools.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
        ),
        datatypes=_datatypes(tools, definition),
    )


def _refusal(tools: Tools, faults: list[Any]) -> str:
    told = list(dict.fromkeys(map(_told, faults))) or [tools.reason()]
    more = f"; and {len(told) - MAX_LISTED} more" if len(told) > MAX_LISTED else ""
    listed = "; ".join(told[:MAX_LISTED])
    return f"the parser of {tools.can.name} {tools.can.version} refuses it: {listed}{more}"


def _told(fault: Any) -> str:
    """Say one error of the parser with the node that it is about, where it is about one."""
    reason = " ".join(str(fault.desc()).split())
    if fault.node() < 0:
        return reason
    name, operator = fault.node_name(), fault.node_operator()
    return f"node {fault.node()} {name!r} ({operator}): {reason}"


def _tensor(tensor: Any, path: Path) -> NetworkTensor:
    try:
        shape = tuple(tensor.shape)
    except ValueError as error:  # its length is -1
        reason = f"tensor {tensor.name!r} has no fixed number of dimensions: fix it in the model"
        raise ConfigError(reason, path=str(path)) from error
    return NetworkTensor(tensor.name, tensor.dtype.name, shape, tensor.is_shape_tensor)


def _datatypes(tools: Tools, definition: Any) -> Mapping[str, int]:
    """Count the types of what layers compute; constants are weights, which may be cast later."""
    layers = map(definition.get_layer, range(definition.num_layers))
    constant = tools.trt.LayerType.CONSTANT
    computed = Counter(
        layer.get_output(index).dtype.name
        for layer in layers
        if layer.type != constant
        for index in range(layer.num_outputs)
    )
    return dict(computed.most_common())
