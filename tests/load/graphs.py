"""ONNX graphs made by hand, layer by layer, with weights of a fixed seed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 9  # what every ONNX Runtime since 1.16 reads
Weights = npt.NDArray[np.floating[Any]]


class Net:
    """A network under construction: `x` goes in, `y` comes out, each method adds one layer.

    Args:
        name: of the graph; the seed of its weights comes from it.
        half: weights and arithmetic in float16.
    """

    def __init__(self, name: str, *, half: bool = False) -> None:
        self.name = name
        self.float_type = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        self._dtype = np.float16 if half else np.float32
        self._random = np.random.default_rng(zlib.crc32(name.encode()))
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def _add(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        output = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def _weight(self, values: Weights) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values.astype(self._dtype), name))
        return name

    def _normal(self, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> str:
        values = self._random.standard_normal(shape, np.float32) * np.float32(
            (gain / fan_in) ** 0.5
        )
        return self._weight(values)

    def _zeros(self, length: int) -> str:
        return self._weight(np.zeros(length, np.float32))

    def normalise(self, mean: Sequence[float], deviation: Sequence[float]) -> str:
        """uint8 `x` → (x / 255 - mean) / deviation by channel, as the client would have done it."""
        shape = (-1, 1, 1) if len(mean) > 1 else (-1,)
        floats = self._add("Cast", ["x"], to=self.float_type)
        deviations = np.asarray(deviation, np.float32).reshape(shape)
        means = np.asarray(mean, np.float32).reshape(shape)
        scale = self._weight(1 / (255 * deviations))
        shift = self._weight(-means / deviations)
        return self._add("Add", [self._add("Mul", [floats, scale]), shift])

    def dense(self, source: str, num_in: int, num_out: int, *, relu: bool = False) -> str:
        """(batch, num_in) → (batch, num_out)."""
        weight = self._normal((num_in, num_out), num_in, 2.0 if relu else 1.0)
        out = self._add("Gemm", [source, weight, self._zeros(num_out)])
        return self._add("Relu", [out]) if relu else out

    def conv(
        self,
        source: str,
        num_in: int,
        num_out: int,
        kernel: int,
        stride: int = 1,
        *,
        group: int = 1,
        relu: bool = True,
        gain: float = 2.0,
    ) -> str:
        """A convolution that keeps the size but for the stride, with its (folded) bias."""
        fan_in = num_in // group * kernel * kernel
        weight = self._normal((num_out, num_in // group, kernel, kernel), fan_in, gain)
        out = self._add(
            "Conv",
            [source, weight, self._zeros(num_out)],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=group,
        )
        return self._add("Relu", [out]) if relu else out

    def max_pool(self, source: str) -> str:
        """Three by three, stride two."""
        return self._add("MaxPool", [source], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def residual(self, left: str, right: str) -> str:
        """relu(left + right)."""
        return self._add("Relu", [self._add("Add", [left, right])])

    def pooled(self, source: str) -> str:
        """(batch, channels, height, width) → (batch, channels)."""
        return self._add("Flatten", [self._add("GlobalAveragePool", [source])])

    def squares(self, source: str, num_in: int, side: int, times: int) -> str:
        """(batch, num_in) → (batch, side), by way of `times` products of side x side matrices."""
        grown = self._add("MatMul", [source, self._normal((num_in, side * side), num_in, 1.0)])
        self._weights.append(numpy_helper.from_array(np.array([-1, side, side]), "square"))
        last = self._add("Reshape", [grown, "square"])
        factor = self._normal((side, side), side, 1.0)
        for _ in range(times):
            last = self._add("MatMul", [last, factor])
        return self._add("ReduceMean", [last], axes=[1], keepdims=0)

    def model(
        self, last: str, input_type: int, input_dims: Sequence[int], num_out: int
    ) -> onnx.ModelProto:
        """The finished model: `x` (batch, *input_dims) → `y` (batch, num_out)."""
        self._nodes.append(helper.make_node("Identity", [last], ["y"]))
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [helper.make_tensor_value_info("x", input_type, ["batch", *input_dims])],
            [helper.make_tensor_value_info("y", self.float_type, ["batch", num_out])],
            self._weights,
        )
        return checked(graph)


def checked(graph: onnx.GraphProto) -> onnx.ModelProto:
    """The graph as a model that ONNX's own checker accepts."""
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return model


def elementwise(
    name: str, operator: str, ports: Sequence[tuple[str, str, int, Sequence[int | str]]]
) -> onnx.ModelProto:
    """One node an (input, output) pair: Identity mostly; ports are (input, output, type, dims)."""
    return checked(
        helper.make_graph(
            [helper.make_node(operator, [source], [target]) for source, target, _, _ in ports],
            name,
            [helper.make_tensor_value_info(source, kind, dims) for source, _, kind, dims in ports],
            [helper.make_tensor_value_info(target, kind, dims) for _, target, kind, dims in ports],
        )
    )
