"""What can open model files on this machine, for the commands that look into them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from headrace.device import open_device
from headrace.device.base import Device
from headrace.engines.inspection import Open, Probe
from headrace.engines.platforms import ONNX, TENSORRT
from headrace.errors import HeadraceError


@contextmanager
def opened() -> Iterator[dict[str, Open]]:
    """Yield what can open model files here, by platform; nothing for what is not installed."""
    openers: dict[str, Open] = {}
    if find_spec("onnxruntime"):
        openers[ONNX.name] = _open_onnx
    with gpu_here() as gpu:
        # TensorRT must not be touched where there is no GPU.
        if gpu is not None:

            def open_plan(path: Path) -> Probe:
                return _open_plan(path, gpu)

            openers[TENSORRT.name] = open_plan
        yield openers


@contextmanager
def gpu_here() -> Iterator[Device | None]:
    """Yield the opened GPU; None where there is none that works."""
    device = None
    with suppress(HeadraceError):
        device = open_device("auto")
    try:
        yield device if device is not None and device.kind == "cudart" else None
    finally:
        if device is not None:
            device.close()


def _open_plan(path: Path, gpu: Device) -> Probe:
    from headrace.engines.kinds import Kinds
    from headrace.engines.trt import TrtOptions, open_engine
    from headrace.model import trial_layouts
    from headrace.slots.blocks import size_class

    engine = open_engine(path, gpu, options=TrtOptions(takes_shape_tensors=True))
    try:
        layouts = trial_layouts(engine, Kinds(engine))
        lane_bytes = max(layout.size_bytes for layout in layouts)
        memory_bytes = {
            "weights": engine.weights_bytes,
            "context": engine.activation_bytes,
            "lane": lane_bytes,
            "block": size_class(lane_bytes),
        }
        return Probe(engine.signature, engine.profile_rows, memory_bytes)
    finally:
        engine.close()


def _open_onnx(path: Path) -> Probe:
    from headrace.engines.ort import open_signature

    return Probe(open_signature(path))
