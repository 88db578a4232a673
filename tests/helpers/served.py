"""Served models for tests of the front door: real specs and layouts, an engine without a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.catalog import ModelCatalog
from headrace.engines.base import Shape, Signature
from headrace.engines.kinds import Kinds
from headrace.engines.model_config import check, complete, model_spec
from headrace.metrics import Metrics
from headrace.model import ServedModel, in_engine_order
from headrace.scheduling.batcher import SingleBatcher
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.scheduling.line import Line
from headrace.slots.capacity import Capacity
from headrace.slots.pool import SlotPool
from helpers.core_rig import AddOneContext, Rig
from helpers.model_repository import config_of, signature_of

ONNX = 'platform: "onnxruntime_onnx" backend: "onnxruntime"'
TENSORRT = 'platform: "tensorrt_plan" backend: "tensorrt"'  # which has shape tensors

ShapesOf = Callable[[Sequence[Shape]], tuple[Shape, ...] | None]


class ShapeEngine:
    """An engine that only knows shapes."""

    platform = "sim"
    is_blocking = True
    weights_bytes = 0
    profile_rows: tuple[int, ...] = ()

    def __init__(self, signature: Signature, shapes_of: ShapesOf) -> None:
        self.signature = signature
        self.shapes_of = shapes_of
        self.asked: list[tuple[Shape, ...]] = []  # the engine's input shapes of every new layout

    def use_profiles(self, wanted: Sequence[int]) -> None:
        """There are none."""

    def trial_shapes(self) -> Sequence[tuple[Shape, ...]]:
        """Never warmed up."""
        return ()

    def check_inputs(self, shapes: Sequence[Shape]) -> None:
        """Take every shape."""

    def output_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...] | None:
        """Ask the test."""
        self.asked.append(tuple(shapes))
        return self.shapes_of(shapes)

    def open_context(self, stream: object) -> AddOneContext:
        """Never called: nothing runs."""
        raise AssertionError("this engine does not run")

    def close(self) -> None:
        """Nothing is open."""


def served(
    inputs: str,
    outputs: str,
    config: str = "",
    *,
    name: str = "m",
    version: int = 1,
    shapes_of: ShapesOf = tuple,
    pool: SlotPool | None = None,
    labels: Mapping[str, tuple[str, ...]] | None = None,
) -> ServedModel:
    """A served model from signatures in text (`x FP32[?,4]`) and a configuration.

    Args:
        inputs: The engine's inputs.
        outputs: The engine's outputs.
        config: What config.pbtxt would say besides name and platform.
        name: The model's.
        version: The model's.
        shapes_of: Output shapes by input shapes; the inputs' own by default.
        pool: Its slots; one that is free by default.
        labels: Class names by output.
    """
    signature = signature_of(inputs, outputs)
    text = f'name: "{name}" {TENSORRT if "!" in inputs else ONNX} {config}'
    completed = complete(config_of(text), signature, auto_complete=True)
    assert [str(fault) for fault in check(completed, signature)] == []
    spec = in_engine_order(model_spec(completed, signature, version, labels=labels))
    metrics = Metrics().model(name, str(version))
    pool = pool or Rig(num_slots=1).pool
    batcher = (
        SingleBatcher()
        if spec.batching is None
        else DynamicBatcher(spec.batching, Capacity(), pool.starts_at, 8, num_busy=pool.num_busy)
    )
    line = Line(name, batcher, pool, metrics, 8)
    engine = ShapeEngine(signature, shapes_of)
    kinds = Kinds(engine, 1 if spec.batching is None else spec.batching.max_rows)
    return ServedModel(spec, completed, engine, line, kinds=kinds)


def catalog_of(*models: ServedModel) -> ModelCatalog:
    """A catalog that serves these models."""
    catalog = ModelCatalog()
    for model in models:
        catalog.add(model)
    return catalog
