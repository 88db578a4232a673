"""What the steps of an ensemble cost, with no transport: `python -m load.ensemble_cost`.

Each model adds a number to four floats and runs inline, so that hardly anything but the server is
measured. Prints microseconds of CPU a request, the least of many: of one model, and of ensembles of
one model after another.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from headrace_proto.v1 import inference_pb2 as pb
from helpers import onnx_models
from helpers.control_rig import write_chain
from load.cache_cost import asker, cpu_us
from load.core_cost import open_core

STEPS = (1, 2, 4, 8)
REQUESTS = 100  # of one timing


def message_of(model: str) -> bytes:
    """Return a request of 16 bytes."""
    request = pb.ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    request.raw_input_contents.append(bytes(16))
    return request.SerializeToString()


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx_models.save(onnx_models.adds(1.0), folder / "one" / "1" / "model.onnx")
        for num_steps in STEPS:
            write_chain(folder, f"steps {num_steps}", *["one"] * num_steps)
        ask = asker(*open_core(folder))
        for model in ("one", *(f"steps {num_steps}" for num_steps in STEPS)):
            message = message_of(model)
            took_us = cpu_us(lambda message=message: ask(message), REQUESTS)  # type: ignore[misc]
            print(f"{model:>8} {took_us:8.1f} us")


if __name__ == "__main__":
    main()
