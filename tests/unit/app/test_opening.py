"""How the slots of a plan are opened and warmed up, on the virtual device and the fake TensorRT."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace.errors import ConfigError, RequestError
from headrace.loader import LoadOptions
from headrace.metrics.exposition import render
from headrace.observe import observe_resources
from headrace.slots.slot import NUM_LANES
from headrace.warm_batches import WarmBatches
from helpers.fake_plans import FILL_CONFIG, fill_plan
from helpers.sim_served import SimServed

GRAPHS = "optimization { cuda { graphs: true } }"


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimServed]:
    """A virtual GPU with the fake; in the end nothing may be open on it."""
    rig = SimServed(tmp_path, monkeypatch)
    yield rig
    rig.close()
    assert rig.sim.leaks() == []


def floats(rows: int, seed: int = 0) -> NDArray[np.float32]:
    """Return (rows, 4) whole numbers."""
    return np.random.default_rng(seed).integers(-9, 9, (rows, 4)).astype(np.float32)


def test_every_lane_has_run_before_the_first_request(rig: SimServed) -> None:
    """Each lane has memory for the largest optimum, which no request moves."""
    rig.load(num_slots=3)
    lanes = [lane for slot in rig.slots for lane in slot.lanes]
    assert len(lanes) == 3 * NUM_LANES
    memories = [lane.memory for lane in lanes]
    assert all(memories)
    for seed in range(20):
        rig.submit(floats(4, seed))
    rig.run()
    assert [lane.memory for lane in lanes] == memories
    assert all(np.array_equal(each.answer, 2 * each.inputs[0]) for each in rig.asked)


def test_all_batches_of_a_gpu_are_tried(rig: SimServed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nobody asks for them: there they cost the host nothing."""
    made: list[bool] = []

    def note(*args: Any, is_optional: bool, **more: Any) -> WarmBatches:
        made.append(is_optional)
        return WarmBatches(*args, is_optional=is_optional, **more)

    monkeypatch.setattr("headrace.opening.WarmBatches", note)
    rig.load(num_slots=1)
    assert made == [False]


def test_a_layout_of_the_warm_up_serves_requests(rig: SimServed) -> None:
    """Bindings and graphs are kept by layout, so the layout must be the same object."""
    model = rig.load(config=GRAPHS)
    assert model.graphs is not None
    assert model.graphs.num_captured >= 2 * NUM_LANES * 2
    for rows in (4, 16):
        assert np.array_equal(rig.ask(floats(rows)), 2 * floats(rows))
    assert (model.graphs.num_hits, rig.misses) == (2, {})


def test_without_the_switch_there_are_no_graphs(rig: SimServed) -> None:
    """Nothing is captured, nothing counted."""
    model = rig.load()
    assert model.graphs is None
    assert all(lane.graphs is None for slot in rig.slots for lane in slot.lanes)


def test_memory_is_told_when_a_model_is_loaded(
    rig: SimServed, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log and by kind: weights once, contexts by slot, inputs and outputs by lane."""
    with caplog.at_level(logging.INFO):
        footprint = rig.load(num_slots=3).footprint
    assert footprint is not None
    told = {kind: read() for kind, read in footprint.by_kind().items()}
    memories = [lane.memory for slot in rig.slots for lane in slot.lanes]
    assert told == {
        "weights": 12345,
        "contexts": 3 * 4000,
        "io": sum(memory.size_bytes for memory in memories if memory is not None),
        "blocks": footprint.blocks_bytes,
        "gather": told["gather"],
    }
    assert footprint.blocks_bytes > 0
    assert "m version 1 takes weights 12345 bytes, 3 contexts 12000 bytes" in caplog.text


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("batch_size: 33", r"graph_spec\[0\].batch_size: is 33, expected 1 to 32"),
        ("batch_size: 0", "is 0, expected 1 to 32"),
        ('batch_size: 1 input { key: "z" value { } }', "there is no input 'z'"),
        (
            "batch_size: 8 graph_lower_bound { batch_size: 9 }",
            r"graph_lower_bound.batch_size: is 9, expected 1 to 8",
        ),
        (
            'batch_size: 1 input { key: "x" value { dim: 5 } }',
            r"gives input 'x' the dims \[5\], expected \[4\]",
        ),
    ],
)
def test_a_wrong_graph_spec_names_its_field(rig: SimServed, spec: str, why: str) -> None:
    """The model is not served, and the text says what would fit."""
    config = (
        f"max_batch_size: 32 optimization {{ cuda {{ graphs: true graph_spec {{ {spec} }} }} }}"
    )
    with pytest.raises(ConfigError, match=why) as caught:
        rig.load(config=config)
    assert str(rig.folder / "m" / "config.pbtxt") in str(caught.value)


def sizes(*values: int) -> NDArray[np.int64]:
    """Return the values of a shape tensor."""
    return np.array(values, np.int64)


def test_values_of_shape_tensors_decide_the_output(rig: SimServed) -> None:
    """Each request has its own, though two lanes of a slot are in flight with others."""
    rig.load(fill_plan(), FILL_CONFIG, num_slots=1)
    x = np.arange(5, dtype=np.float32)
    wanted = [(1, 1), (2, 3), (4, 4), (2, 3), (3, 2), (1, 4)]
    asked = [rig.submit(x, sizes(*size)) for size in wanted]
    rig.run()
    for each, size in zip(asked, wanted, strict=True):
        assert np.array_equal(each.answer, np.full(size, 10.0, np.float32))


def test_values_that_no_profile_takes_are_the_callers_fault(rig: SimServed) -> None:
    """The text has the values and their range, and nothing reaches a slot."""
    rig.load(fill_plan(), FILL_CONFIG, num_slots=1)
    with pytest.raises(RequestError, match=r"'size' has the values \[2, 9\], expected .*1..4"):
        rig.submit(np.zeros(3, np.float32), sizes(2, 9))


def test_a_plan_with_shape_tensors_has_no_graphs(
    rig: SimServed, caplog: pytest.LogCaptureFixture
) -> None:
    """A replay would use the values of its capture."""
    model = rig.load(fill_plan(), FILL_CONFIG + GRAPHS, num_slots=1)
    assert model.graphs is None
    assert "the values of its shape tensors are read at each enqueue" in caplog.text


def test_many_values_leave_few_bindings_behind(rig: SimServed) -> None:
    """What clients choose is bounded, and answers stay right when bindings make room."""
    plan = fill_plan()
    plan["profiles"][0]["size:values"] = [[1, 1], [2, 3], [16, 16]]
    rig.load(plan, FILL_CONFIG, num_slots=1)
    x = np.ones(3, np.float32)
    wanted = [(rows, columns) for rows in range(1, 13) for columns in range(1, 13)]
    for size in wanted + wanted[:5]:
        assert np.array_equal(rig.ask(x, sizes(*size)), np.full(size, 3.0, np.float32))


PADDED = """
max_batch_size: 32
optimization { cuda { graphs: true
  graph_spec { batch_size: 8 graph_lower_bound { batch_size: 3 } }
  graph_spec { batch_size: 24 graph_lower_bound { batch_size: 20 } }
} }
"""


def test_fewer_rows_are_padded_to_the_next_graph(rig: SimServed) -> None:
    """Down to the bound that the configuration names; the padding is zeros and is never sent."""
    model = rig.load(config=PADDED, num_slots=1)
    assert model.graphs is not None
    for seed, rows in enumerate((3, 8, 5, 20, 24, 23, 7)):
        assert np.array_equal(rig.ask(floats(rows, seed)), 2 * floats(rows, seed))
    assert (model.graphs.num_hits, rig.misses) == (7, {})
    for rows in (9, 13, 19, 25):  # that were no batches of the warm-up either
        assert np.array_equal(rig.ask(floats(rows)), 2 * floats(rows))
    assert (model.graphs.num_hits, rig.misses) == (7, {"new": 4})


def test_padding_holds_nothing_of_other_requests(rig: SimServed) -> None:
    """Blocks go from request to request; a padded one computes on its own rows and zeros."""
    tensors = """
    input { name: "x" data_type: TYPE_FP32 dims: 4 }
    output { name: "y" data_type: TYPE_FP32 dims: 4 }
    """
    alone = LoadOptions(auto_complete=False)  # nothing switches batching on
    rig.load(config=PADDED + tensors, num_slots=1, options=alone)
    rig.ask(floats(8) + 100)
    asked = rig.submit(floats(3))
    block = asked.request.block
    assert block is not None
    layout = asked.request.layout
    (offset,), size = layout.input_offsets, layout.input_sizes[0]
    assert layout.padded_to is not None
    staged = bytes(block.view[offset : offset + layout.padded_to.input_sizes[0]])
    assert staged == floats(3).tobytes() + bytes(5 * 16)
    assert size == 3 * 16
    rig.run()
    assert np.array_equal(asked.answer, 2 * floats(3))


def test_padding_of_a_batch_holds_nothing_of_others(rig: SimServed) -> None:
    """Rows behind the batch's own are zeros on the device, whatever its memory held."""
    rig.load(config=PADDED, num_slots=1)
    rig.ask(floats(8) + 100)
    asked = [rig.submit(floats(rows, rows)) for rows in (1, 2)]
    rig.run()
    for each in asked:
        assert np.array_equal(each.answer, 2 * each.inputs[0])
        assert each.request.layout.padded_to is None
        assert each.request.batch_rows == 3
    ran = floats(1, 1).tobytes() + floats(2, 2).tobytes() + bytes(5 * 16)
    lanes = [lane.memory for lane in rig.slots[0].lanes if lane.memory is not None]
    assert ran in [bytes(rig.sim.bytes_at(memory.ptr, len(ran))) for memory in lanes]


def test_metrics_tell_memory_and_graphs(rig: SimServed) -> None:
    """By model and version, with the kind or the reason, of the moment of the scrape."""
    model = rig.load(config=GRAPHS, num_slots=1)
    observe_resources(rig.metrics, model, {"model": "m", "version": "1"})
    for rows in (4, 4, 5):
        rig.ask(floats(rows))
    text = render(rig.metrics.registry)[0].decode()
    assert 'headrace_graph_hits_total{model="m",version="1"} 2.0' in text
    assert 'headrace_graph_misses_total{model="m",reason="new",version="1"} 1.0' in text
    assert 'headrace_graphs{model="m",version="1"} 8.0' in text
    for kind, size_bytes in (("weights", 12345), ("contexts", 4000)):
        labels = f'kind="{kind}",model="m",version="1"'
        assert f"headrace_model_memory_bytes{{{labels}}} {float(size_bytes)}" in text
