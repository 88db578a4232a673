"""Small ONNX models for the tests of the server, and the repository that most of them use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from load.graphs import IR_VERSION, OPSET, checked

Dims = Sequence[int | str] | None
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING

LEAST_ROUNDS = 32
"""So many are run for zeros, too: warm-up must see that the slow model is slow."""

SQUARE = 192  # a round of the slow models takes the sine of so many numbers, squared


def port(name: str, kind: int, dims: Dims) -> onnx.ValueInfoProto:
    """An input or output; a name among `dims` is a free dimension, None is an unknown rank."""
    return helper.make_tensor_value_info(name, kind, dims)


def number(name: str, value: float, kind: int = FLOAT, dims: Sequence[int] = ()) -> Any:
    """A node that gives one number, a scalar unless `dims` says [1]."""
    tensor = helper.make_tensor(f"{name}_value", kind, dims, [value])
    return helper.make_node("Constant", [], [name], value=tensor)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    """A checked model of these parts."""
    return checked(helper.make_graph(nodes, "g", inputs, outputs, weights))


def unchecked(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """A model that says of itself what ONNX's own checker would not believe."""
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)


def adds(value: float) -> onnx.ModelProto:
    """FP32 `x` [batch, 4] → `y` = x + value: tells which version answered."""
    return model(
        [number("c", value), helper.make_node("Add", ["x", "c"], ["y"])],
        [port("x", FLOAT, ["batch", 4])],
        [port("y", FLOAT, ["batch", 4])],
    )


def three() -> onnx.ModelProto:
    """`a` FP32, `b` INT64, `c` BYTES, of three widths → `p` = 2a, `q` = -b, `r` = c."""
    return model(
        [
            helper.make_node("Add", ["a", "a"], ["p"]),
            helper.make_node("Neg", ["b"], ["q"]),
            helper.make_node("Identity", ["c"], ["r"]),
        ],
        [port("a", FLOAT, ["n", 2]), port("b", INT64, ["n", 3]), port("c", STRING, ["n", 1])],
        [port("p", FLOAT, ["n", 2]), port("q", INT64, ["n", 3]), port("r", STRING, ["n", 1])],
    )


def two() -> onnx.ModelProto:
    """`a` FP32 [n, 2], `b` INT64 [n, 3] → `p` = 2a, `q` = -b: inputs that can be bound."""
    return model(
        [helper.make_node("Add", ["a", "a"], ["p"]), helper.make_node("Neg", ["b"], ["q"])],
        [port("a", FLOAT, ["n", 2]), port("b", INT64, ["n", 3])],
        [port("p", FLOAT, ["n", 2]), port("q", INT64, ["n", 3])],
    )


def negative() -> onnx.ModelProto:
    """`x` FP32 [batch] → `y` = -x: a vector, which `reshape` can show as [batch, 1]."""
    return model(
        [helper.make_node("Neg", ["x"], ["y"])],
        [port("x", FLOAT, ["batch"])],
        [port("y", FLOAT, ["batch"])],
    )


def places() -> onnx.ModelProto:
    """`x` FP32 [n] → `y` INT64 [1, k]: where x is not zero; only the run can tell k."""
    return model(
        [helper.make_node("NonZero", ["x"], ["y"])],
        [port("x", FLOAT, ["n"])],
        [port("y", INT64, [1, "k"])],
    )


def picks() -> onnx.ModelProto:
    """`i` INT64 [n] → `y` FP32 [n] of a table of four: a number outside it fails the run."""
    table = numpy_helper.from_array(np.arange(4, dtype=np.float32) * 10, "table")
    return model(
        [helper.make_node("Gather", ["table", "i"], ["y"])],
        [port("i", INT64, ["n"])],
        [port("y", FLOAT, ["n"])],
        [table],
    )


def sums(*, has_rows: bool = True) -> onnx.ModelProto:
    """`x` FP32 [batch, 4] and a state → `y`, their sum, which is the state again.

    `told` INT64 [batch, 4] are the controls: START, READY, END and the id of the sequence.
    """
    head: list[int | str] = ["batch"] if has_rows else []
    controls = (
        ("START", TensorProto.INT32),
        ("READY", TensorProto.BOOL),
        ("END", FLOAT),
        ("ID", TensorProto.UINT64),
    )
    nodes = [
        helper.make_node("Add", ["x", "had"], ["y"]),
        helper.make_node("Identity", ["y"], ["has"]),
        *(helper.make_node("Cast", [name], [f"{name}_"], to=INT64) for name, _ in controls),
        helper.make_node("Concat", [f"{name}_" for name, _ in controls], ["told"], axis=-1),
    ]
    wide, one = [*head, 4], [*head, 1]
    hidden = [port("had", FLOAT, wide), *(port(name, kind, one) for name, kind in controls)]
    # A control stands before what clients send, and a state behind it.
    inputs = [hidden[1], port("x", FLOAT, wide), hidden[0], *hidden[2:]]
    outputs = [port("has", FLOAT, wide), port("y", FLOAT, wide), port("told", INT64, wide)]
    return model(nodes, inputs, outputs)


def carries() -> onnx.ModelProto:
    """`x` FP32 [batch, 4] and a state `had` → `y`, their sum, and `has`, the same."""
    ports = {name: port(name, FLOAT, ["batch", 4]) for name in ("x", "had", "y", "has")}
    nodes = [
        helper.make_node("Add", ["x", "had"], ["y"]),
        helper.make_node("Identity", ["y"], ["has"]),
    ]
    return model(nodes, [ports["x"], ports["had"]], [ports["y"], ports["has"]])


def slow(square: int = SQUARE) -> onnx.ModelProto:
    """`x` FP32 [n], `rounds` INT64 [1] → `y` = x, after that many rounds of work for nothing."""
    nodes = [
        number("least", LEAST_ROUNDS, INT64, [1]),
        helper.make_node("Max", ["rounds", "least"], ["wanted"]),
        helper.make_node("Squeeze", ["wanted"], ["count"]),
    ]
    ports = [port("x", FLOAT, ["n"]), port("rounds", INT64, [1])]
    return _working(nodes, ports, [port("y", FLOAT, ["n"])], square)


def busy(rounds: int) -> onnx.ModelProto:
    """`x` FP32 [batch, 4] → `y` = x, after that many rounds of work, whatever the rows."""
    nodes = [number("count", rounds, INT64)]
    ports = [port(name, FLOAT, ["batch", 4]) for name in "xy"]
    return _working(nodes, ports[:1], ports[1:], SQUARE)


def _working(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    square: int,
) -> onnx.ModelProto:
    """`y` = `x`, after `count` rounds of work for nothing.

    A round takes the sine of square² numbers. They come from x, so that no optimizer can do the
    work ahead, and go into y times zero.
    """
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["going"]),
            helper.make_node("Sin", ["before"], ["after"]),
        ],
        "body",
        [
            port("round", INT64, []),
            port("go", TensorProto.BOOL, []),
            port("before", FLOAT, [square, square]),
        ],
        [port("going", TensorProto.BOOL, []), port("after", FLOAT, [square, square])],
    )
    shape = numpy_helper.from_array(np.array([square, square], np.int64), "shape")
    work = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Expand", ["sum", "shape"], ["start"]),
        helper.make_node("Loop", ["count", "", "start"], ["end"], body=body),
        helper.make_node("ReduceMean", ["end"], ["mean"], keepdims=0),
        number("zero", 0.0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["x", "nothing"], ["y"]),
    ]
    return model([*nodes, *work], inputs, outputs, [shape])


def wide(columns: int) -> onnx.ModelProto:
    """`x` FP32 [1] → `y` FP32 [columns], x in each: a small request with a large reply."""
    shape = numpy_helper.from_array(np.array([columns], np.int64), "shape")
    return model(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        [port("x", FLOAT, [1])],
        [port("y", FLOAT, [columns])],
        [shape],
    )


def reads(location: str, num_bytes: int = 16) -> onnx.ModelProto:
    """→ UINT8 `y`, the first bytes of a file beside the model, or wherever `location` leads."""
    weight = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[num_bytes])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(num_bytes))):
        weight.external_data.add(key=key, value=value)
    node = helper.make_node("Identity", ["w"], ["y"])
    graph = helper.make_graph(
        [node], "g", [], [port("y", TensorProto.UINT8, [num_bytes])], [weight]
    )
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)


def save(built: onnx.ModelProto, path: Path) -> Path:
    """Writes a model file, the folders above it too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(built, str(path))
    return path


SLOW_CONFIG = """
backend: "onnxruntime"
max_batch_size: 0
input [{name: "x" data_type: TYPE_FP32 dims: [-1]},
       {name: "rounds" data_type: TYPE_INT64 dims: [1]}]
output {name: "y" data_type: TYPE_FP32 dims: [-1]}
instance_group {count: 1 kind: KIND_CPU}
"""
TURNED_CONFIG = """
backend: "onnxruntime"
max_batch_size: 8
input [{name: "b" data_type: TYPE_INT64 dims: [3]}, {name: "a" data_type: TYPE_FP32 dims: [2]}]
output [{name: "q" data_type: TYPE_INT64 dims: [3]}, {name: "p" data_type: TYPE_FP32 dims: [2]}]
"""
RESHAPED_CONFIG = """
backend: "onnxruntime"
max_batch_size: 8
input {name: "x" data_type: TYPE_FP32 dims: [1] reshape {shape: []}}
output {name: "y" data_type: TYPE_FP32 dims: [1] reshape {shape: []}}
"""
SEQUENCE = """
  control_input [
    {name: "START" control {kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1]}},
    {name: "READY" control {kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true]}},
    {name: "END" control {kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1]}},
    {name: "ID" control {kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64}}]
"""
STATE = 'state {input_name: "had" output_name: "has" data_type: TYPE_FP32 dims: [4]'
CARRIES_CONFIG = f'backend: "onnxruntime" sequence_batching {{ direct {{}} {STATE}}} }}'
SUMS_CONFIG = f"""
backend: "onnxruntime"
max_batch_size: 4
sequence_batching {{ max_sequence_idle_microseconds: 30000000 direct {{}} {SEQUENCE} {STATE}}} }}
"""
VERSIONS_CONFIG = 'backend: "onnxruntime"\nversion_policy {all {}}\n'


def write_repository(folder: Path) -> Path:
    """Writes the models of the service tests below `folder`, which it returns."""
    save(three(), folder / "three/1/model.onnx")
    save(two(), folder / "turned/1/model.onnx")
    save(negative(), folder / "reshaped/1/model.onnx")
    save(places(), folder / "places/1/model.onnx")
    save(picks(), folder / "picks/1/model.onnx")
    save(slow(), folder / "slow/1/model.onnx")
    for version in (1, 2, 10):
        save(adds(version), folder / f"versions/{version}/model.onnx")
    for name, config in (
        ("turned", TURNED_CONFIG),
        ("reshaped", RESHAPED_CONFIG),
        ("slow", SLOW_CONFIG),
        ("versions", VERSIONS_CONFIG),
    ):
        (folder / name / "config.pbtxt").write_text(config)
    return folder
