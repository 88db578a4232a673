"""The models of the comparison with Triton, for either server: what goes in comes out.

headrace is given them as ONNX models, Triton as models of its Python backend, which is the one that
its wheel brings. The configurations are the same but for the backend and the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from load.graphs import checked, elementwise

Port = tuple[str, str, str, tuple[int, ...]]  # input, output, datatype, dims without the batch

_KINDS = {"FP32": TensorProto.FLOAT, "INT32": TensorProto.INT32, "INT64": TensorProto.INT64}
_KINDS |= {"STRING": TensorProto.STRING}

# Gives back every input under its output's name; `failing` fails at places beyond its three.
_PYTHON = """\
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        if config["name"] == "broken":
            raise pb_utils.TritonModelException("broken on purpose")
        self.ports = [
            (one["name"], other["name"]) for one, other in zip(config["input"], config["output"])
        ]
        self.picks = config["name"] == "failing"
        self.has_turns = config["name"] == "turns"

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        if self.has_turns:
            return self.turn(request)
        tensors = []
        for name, output in self.ports:
            array = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            if self.picks:
                try:
                    array = np.arange(3, dtype=np.int64)[array]
                except IndexError as error:
                    failure = pb_utils.TritonError(str(error))
                    return pb_utils.InferenceResponse([], failure)
            tensors.append(pb_utils.Tensor(output, array))
        return pb_utils.InferenceResponse(tensors)

    def turn(self, request):
        x, start, end, number = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1, 1)
            for name in ("x", "START", "END", "CORRID")
        )
        y = (x + 100 * start + 1000 * end).astype(np.int32)
        outputs = [pb_utils.Tensor("y", y), pb_utils.Tensor("c", number)]
        return pb_utils.InferenceResponse(outputs)
"""


@dataclass(frozen=True)
class ComparedModel:
    """One model of both repositories.

    Args:
        name: Its name.
        ports: What goes in and comes out.
        max_batch_size: 0 for one without batches.
        versions: All of them, whatever the policy serves.
        config: More of its configuration.
        build: Its ONNX graph, where it is no identity.
        steps: The models that it is made of, where it is an ensemble.
        is_loaded: Loaded at the start.
    """

    name: str
    ports: tuple[Port, ...]
    max_batch_size: int = 8
    versions: tuple[int, ...] = (1,)
    config: str = ""
    build: Callable[[], onnx.ModelProto] | None = None
    steps: tuple[str, ...] = ()
    is_loaded: bool = True

    def graph(self) -> onnx.ModelProto:
        """The ONNX model."""
        if self.build:
            return self.build()
        batch = ("batch",) if self.max_batch_size else ()
        ports = [
            (source, target, _KINDS[kind], (*batch, *dims))
            for source, target, kind, dims in self.ports
        ]
        return elementwise(self.name, "Identity", ports)


def _picks() -> onnx.ModelProto:
    """`y` = one of three numbers, by its place `x`: a place that is not there fails the run."""
    three = helper.make_tensor("three", TensorProto.INT64, [3], [0, 1, 2])
    ports = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", 1]) for name in ("x", "y")
    ]
    node = helper.make_node("Gather", ["three", "x"], ["y"])
    return checked(helper.make_graph([node], "failing", ports[:1], ports[1:], [three]))


def _turns() -> onnx.ModelProto:
    """`y` = x + 100 START + 1000 END, `c` = CORRID."""
    kinds = {"x": TensorProto.INT32, "START": TensorProto.INT32, "END": TensorProto.INT32}
    kinds |= {"CORRID": TensorProto.UINT64, "y": TensorProto.INT32, "c": TensorProto.UINT64}
    ports = {
        name: helper.make_tensor_value_info(name, kind, ["batch", 1])
        for name, kind in kinds.items()
    }
    weights = [
        helper.make_tensor(name, TensorProto.INT32, [1], [value])
        for name, value in (("hundred", 100), ("thousand", 1000))
    ]
    nodes = [
        helper.make_node("Mul", ["START", "hundred"], ["s"]),
        helper.make_node("Mul", ["END", "thousand"], ["e"]),
        helper.make_node("Add", ["x", "s"], ["xs"]),
        helper.make_node("Add", ["xs", "e"], ["y"]),
        helper.make_node("Identity", ["CORRID"], ["c"]),
    ]
    inputs = [ports[name] for name in ("x", "START", "END", "CORRID")]
    graph = helper.make_graph(nodes, "turns", inputs, [ports["y"], ports["c"]], weights)
    return checked(graph)


_ONE: tuple[Port, ...] = (("x", "y", "FP32", (4,)),)
_LEVELS = (
    "dynamic_batching { priority_levels: 2 default_priority_level: 1 "
    "default_queue_policy { allow_timeout_override: true } }"
)
_FLAG = "control { kind: CONTROL_SEQUENCE_%s int32_false_true: [ 0, 1 ] }"
_SEQUENCES = f"""output {{ name: "c" data_type: TYPE_UINT64 dims: [ 1 ] }}
sequence_batching {{
  max_sequence_idle_microseconds: 60000000
  control_input {{ name: "START" {_FLAG % "START"} }}
  control_input {{ name: "END" {_FLAG % "END"} }}
  control_input {{
    name: "CORRID" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 }}
  }}
}}"""
COMPARED = (
    ComparedModel("pair", (("a", "p", "FP32", (4,)), ("b", "q", "INT32", (2,)))),
    ComparedModel("words", (("x", "y", "STRING", (1,)),)),
    ComparedModel("whole", (("x", "y", "FP32", (2, 3)),), max_batch_size=0),
    ComparedModel("two", _ONE, versions=(1, 2)),
    ComparedModel("both", _ONE, versions=(1, 2), config="version_policy { all { } }"),
    ComparedModel("labelled", (("x", "y", "FP32", (5,)),)),
    ComparedModel("failing", (("x", "y", "INT64", (1,)),), build=_picks),
    ComparedModel("wishes", _ONE, config=_LEVELS),
    ComparedModel("spare", _ONE, is_loaded=False),
    ComparedModel("broken", _ONE, is_loaded=False),
    ComparedModel(
        "turns", (("x", "y", "INT32", (1,)),), 4, config=_SEQUENCES, build=_turns, is_loaded=False
    ),
    ComparedModel("chain", _ONE, steps=("wishes", "two"), is_loaded=False),
    ComparedModel("fragile", (("x", "y", "INT64", (1,)),), steps=("failing",), is_loaded=False),
    ComparedModel("gap", _ONE, steps=("wishes", "nothing"), is_loaded=False),
    ComparedModel("kept", _ONE, config="response_cache { enable: true }", is_loaded=False),
)
LOADED = tuple(model.name for model in COMPARED if model.is_loaded)


def write_both(folder: Path) -> tuple[Path, Path]:
    """Write both repositories below `folder`; headrace's and Triton's."""
    ours, theirs = folder / "headrace", folder / "triton"
    for model in COMPARED:
        for repository, backend in ((ours, "onnxruntime"), (theirs, "python")):
            home = repository / model.name
            home.mkdir(parents=True)
            (home / "config.pbtxt").write_text(_config(model, backend))
            if model.name == "labelled":
                (home / "labels.txt").write_text("a\nb\nc\nd\ne\n")
            for version in model.versions:
                (home / str(version)).mkdir()
                if model.steps:
                    continue
                if backend == "python":
                    (home / str(version) / "model.py").write_text(_PYTHON)
                elif model.name == "broken":
                    (home / str(version) / "model.onnx").write_bytes(b"broken on purpose")
                else:
                    onnx.save(model.graph(), str(home / str(version) / "model.onnx"))
    return ours, theirs


def _config(model: ComparedModel, backend: str) -> str:
    kind = 'platform: "ensemble"' if model.steps else f'backend: "{backend}"'
    lines = [f'name: "{model.name}"', kind]
    lines.append(f"max_batch_size: {model.max_batch_size}")
    for source, target, kind, dims in model.ports:
        label = ' label_filename: "labels.txt"' if model.name == "labelled" else ""
        shape = f"data_type: TYPE_{kind} dims: {list(dims)}"
        lines.append(f'input {{ name: "{source}" {shape} }}')
        lines.append(f'output {{ name: "{target}" {shape}{label} }}')
    if model.steps:
        lines.append(f"ensemble_scheduling {{ {_steps(model.steps)} }}")
    else:
        lines.append("instance_group [ { count: 1 kind: KIND_CPU } ]")
    lines.append(model.config)
    return "\n".join(lines) + "\n"


def _steps(names: Sequence[str]) -> str:
    """Each takes its `x` from the one before, which gives it its `y`."""
    tensors = ["x", *(f"h{number}" for number in range(1, len(names))), "y"]
    return " ".join(
        f'step {{ model_name: "{name}" model_version: -1 '
        f'input_map {{ key: "x" value: "{source}" }} '
        f'output_map {{ key: "y" value: "{target}" }} }}'
        for name, source, target in zip(names, tensors, tensors[1:], strict=False)
    )
