"""What keeping a model's state costs a request, with no transport: `-m load.sequence_cost`.

The model passes its input and its state on, so none is cheaper. Prints microseconds of CPU a
request, the least of many, by the size of the state: of a request within a sequence; of a sequence
of one request, whose head the server has not seen; and where clients carry the state themselves.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from onnx import helper

from headrace.memory import keep_large_blocks
from headrace_proto.v1 import inference_pb2 as pb
from helpers.onnx_models import FLOAT, model, port, save
from load.cache_cost import asker, cpu_us
from load.core_cost import open_core

STATE_BYTES = (16, 4_096, 65_536, 1_048_576)
SECONDS = 0.02  # of one timing, about
WIDTH = 16  # numbers that a client sends and gets


def write(folder: Path, size_bytes: int, *, is_stateful: bool) -> Path:
    """Write a repository with a model that passes on what it gets."""
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in (("x", "y"), ("had", "has"))]
    dims = {"x": [WIDTH], "y": [WIDTH], "had": [size_bytes // 4], "has": [size_bytes // 4]}
    ports = {name: port(name, FLOAT, shape) for name, shape in dims.items()}
    built = model(nodes, [ports["x"], ports["had"]], [ports["y"], ports["has"]])
    save(built, folder / "m/1/model.onnx")
    if is_stateful:
        state = 'input_name: "had" output_name: "has" data_type: TYPE_FP32 dims: [-1]'
        idle = "max_sequence_idle_microseconds: 600000000"  # for as long as is measured
        config = f'backend: "onnxruntime" sequence_batching {{ {idle} state {{ {state} }} }}'
        (folder / "m/config.pbtxt").write_text(config)
    return folder


def message_of(tensors: dict[str, int], **parameters: Any) -> bytes:
    """Return a request of zeros, so many numbers of each."""
    request = pb.ModelInferRequest(model_name="m")
    for name, numbers in tensors.items():
        request.inputs.add(name=name, datatype="FP32", shape=[numbers])
        request.raw_input_contents.append(bytes(4 * numbers))
    for name, value in parameters.items():
        field = "bool_param" if isinstance(value, bool) else "int64_param"
        setattr(request.parameters[name], field, value)
    return request.SerializeToString()


def row_of(folder: Path, size_bytes: int) -> str:
    """Measure one size."""
    times = max(3, int(SECONDS / (30e-6 + size_bytes * 1e-9)))
    ask = asker(*open_core(write(folder / "kept", size_bytes, is_stateful=True)))
    ask(message_of({"x": WIDTH}, sequence_id=1, sequence_start=True))
    within = message_of({"x": WIDTH}, sequence_id=1)
    ids = count(2)
    flags = {"sequence_start": True, "sequence_end": True}
    whole = [
        message_of({"x": WIDTH}, sequence_id=next(ids), **flags) for _ in range(13 * times)
    ].pop
    plain = asker(*open_core(write(folder / "sent", size_bytes, is_stateful=False)))
    sent = message_of({"x": WIDTH, "had": size_bytes // 4})
    calls: tuple[Callable[[], None], ...] = (
        lambda: ask(within),
        lambda: ask(whole()),
        lambda: plain(sent),
    )
    return f"{size_bytes:>10,} " + " ".join(f"{cpu_us(call, times):>12.1f}" for call in calls)


def main() -> None:
    """Measure and print."""
    keep_large_blocks()
    print(f"{'state':>10} {'within us':>12} {'alone us':>12} {'by client us':>12}")
    for size_bytes in STATE_BYTES:
        with tempfile.TemporaryDirectory() as folder:
            print(row_of(Path(folder), size_bytes))


if __name__ == "__main__":
    main()
