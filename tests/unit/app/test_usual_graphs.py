"""Graphs that nobody named: which there are, what is padded to them, and what they may cost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace import opening, trials
from headrace.device.base import DeviceBuffer
from headrace.device.sim_stream import SimGraph, SimStream
from headrace.engines.trt import TrtEngine
from headrace.errors import DeviceError, EngineError
from headrace.loader import LoadOptions
from headrace.model import ServedModel
from headrace.slots.blocks import size_class
from headrace.slots.graphs import PLAIN_RUNS
from headrace.slots.slot import NUM_LANES
from helpers.fake_plans import double_plan, tensor
from helpers.sim_served import SimServed
from helpers.trt_served import ALONE, TENSORS

GRAPHS = "optimization { cuda { graphs: true } }"
BATCHED = f"max_batch_size: 32 {GRAPHS} {TENSORS}"
OPTIMA = (4, 16)  # rows of the plan's profiles

BYTES_OF_16_ROWS, BYTES_OF_32_ROWS = 512 + 16 * 4 * 4, 512 + 32 * 4 * 4
"""Of a layout: four floats a row in and out, the outputs at a multiple of 512 bytes."""


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimServed]:
    """A virtual GPU whose plans cost the host in a plain run what ONNX models do."""
    monkeypatch.setattr(TrtEngine, "pads_to_graphs", True)
    rig = SimServed(tmp_path, monkeypatch)
    yield rig
    rig.close()
    assert rig.sim.leaks() == []


def floats(rows: int, seed: int = 0) -> NDArray[np.float32]:
    """Return (rows, 4) whole numbers."""
    return np.random.default_rng(seed).integers(-9, 9, (rows, 4)).astype(np.float32)


def num_rows(model: ServedModel) -> set[int]:
    """Rows of the layouts that were warmed up."""
    return {shapes[0][0] for shapes, _sizes, _values in model._warm}


@pytest.mark.parametrize(
    ("cuda_graphs", "config", "has_graphs"),
    [
        ("auto", "", False),  # of a plan
        ("on", "", True),
        ("off", "", False),
        ("on", "optimization { cuda { graphs: false } }", False),
        ("off", GRAPHS, True),
    ],
)
def test_the_configuration_goes_before_the_flag(
    rig: SimServed, cuda_graphs: Literal["auto", "on", "off"], config: str, has_graphs: bool
) -> None:
    """And tells in the end what holds."""
    model = rig.load(config=config, options=LoadOptions(cuda_graphs=cuda_graphs))
    assert (model.graphs is not None) is has_graphs
    assert model.config.optimization.cuda.graphs is has_graphs


@pytest.mark.parametrize("options", [ALONE, LoadOptions()], ids=["alone", "in batches"])
def test_all_batches_run_as_graphs(rig: SimServed, options: LoadOptions) -> None:
    """Rows double; what lies between is padded, and replies have the rows that came."""
    model = rig.load(options=options, config=BATCHED, num_slots=1)
    assert model.graphs is not None
    assert model.graphs.num_captured == NUM_LANES * 6
    for rows in range(1, 33):
        assert np.array_equal(rig.ask(floats(rows, rows)), 2 * floats(rows, rows))
    assert (model.graphs.num_hits, rig.misses) == (32, {})


def test_a_graph_that_is_named_stands_alone(rig: SimServed) -> None:
    """Who names one has decided; beside it there are the optima of the profiles."""
    named = "optimization { cuda { graphs: true graph_spec { batch_size: 8 } } }"
    config = f"max_batch_size: 32 {named} {TENSORS}"
    model = rig.load(config=config, num_slots=1, options=ALONE)
    assert num_rows(model) == {*OPTIMA, 8}


def test_no_staging_memory_is_kept_for_them(rig: SimServed) -> None:
    """The optima have theirs; nobody has said that larger requests will come."""
    width = 4096
    wide = [[1, width], [4, width], [8, width]], [[8, width], [16, width], [32, width]]
    plan: dict[str, Any] = double_plan(
        tensors=[tensor("x", "INPUT", [-1, width]), tensor("y", "OUTPUT", [-1, width])],
        profiles=[{"x": shapes} for shapes in wide],
    )
    config = BATCHED.replace("dims: 4", f"dims: {width}")
    model = rig.load(plan, config, num_slots=1, options=ALONE)
    assert num_rows(model) == {1, 2, 4, 8, 16, 32}
    assert model.footprint is not None
    most = sum(size_class(2 * rows * width * 4) for rows in OPTIMA) * 2 * NUM_LANES
    assert 0 < model.footprint.blocks_bytes <= most


def test_large_ones_are_left_out(rig: SimServed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such batches run all the same, and get graphs of their own once they are in use."""
    monkeypatch.setattr(trials, "USUAL_BYTES", BYTES_OF_16_ROWS)
    model = rig.load(options=ALONE, config=BATCHED, num_slots=1)
    assert num_rows(model) == {1, 2, 4, 8, 16}
    for turn in range(8):
        assert np.array_equal(rig.ask(floats(17, turn)), 2 * floats(17, turn))
    assert model.graphs is not None
    assert (model.graphs.num_hits, rig.misses) == (8 - PLAIN_RUNS, {"new": PLAIN_RUNS})


def test_memory_that_is_missing_is_no_fault(
    rig: SimServed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What finds none is left out on all slots, and nothing is padded to it."""
    alloc = rig.sim.alloc_device

    def alloc_little(size_bytes: int) -> DeviceBuffer:
        if size_bytes == BYTES_OF_32_ROWS:
            raise DeviceError("out of memory")
        return alloc(size_bytes)

    monkeypatch.setattr(rig.sim, "alloc_device", alloc_little)
    model = rig.load(options=ALONE, config=BATCHED)
    assert num_rows(model) == {1, 2, 4, 8, 16}
    assert model.graphs is not None
    assert model.graphs.num_captured == 2 * NUM_LANES * 5
    assert np.array_equal(rig.ask(floats(13)), 2 * floats(13))


def test_slots_that_are_opened_late_do_without_at_first(rig: SimServed) -> None:
    """A load is not delayed for ever by what nobody asked for."""
    slow = itertools.count(0.0, opening.USUAL_LOAD_S * 0.7)
    is_loading = True
    rig.clock = lambda: next(slow) if is_loading else time.monotonic()
    model = rig.load(options=ALONE, config=BATCHED, num_slots=3)
    is_loading = False
    assert model.graphs is not None
    assert model.graphs.num_captured == NUM_LANES * (6 + len(OPTIMA) + len(OPTIMA))
    asked = [rig.submit(floats(3, seed)) for seed in range(60)]
    rig.run()
    assert all(np.array_equal(each.answer, 2 * each.inputs[0]) for each in asked)


def test_without_graphs_nothing_is_padded(rig: SimServed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding costs the device, and would be for nothing."""

    def refuse(*_: Any) -> None:
        raise EngineError("it cannot be captured")

    monkeypatch.setattr(SimStream, "capture", refuse)
    rig.load(options=ALONE, config=BATCHED, num_slots=1)
    asked = rig.submit(floats(3))
    assert asked.request.layout.padded_to is None
    rig.run()
    assert np.array_equal(asked.answer, 2 * floats(3))


def test_one_graph_that_replays_something_else_speaks_for_all(
    rig: SimServed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Graphs of shapes in use are not compared, so such a model gets none; answers are right."""
    launch, launched = SimGraph.launch, dict[str, None]()

    def launch_all_but_one(graph: SimGraph) -> None:
        launched[graph.name] = None
        if list(launched).index(graph.name) != 2:
            launch(graph)

    monkeypatch.setattr(SimGraph, "launch", launch_all_but_one)
    model = rig.load(options=ALONE, config=BATCHED)
    assert model.graphs is not None
    assert model.graphs.num_captured == 0
    assert caplog.text.count("a replay gave other outputs than a plain run") == 1
    for turn in range(12):
        assert np.array_equal(rig.ask(floats(3, turn)), 2 * floats(3, turn))
    assert (model.graphs.num_hits, rig.misses) == (0, {"refused": 12})
