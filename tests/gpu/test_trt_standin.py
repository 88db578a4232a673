"""The TensorRT adapter, unchanged, with slots and graphs on a GPU, on a stand-in for TensorRT."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from headrace.engines.trt_api import OPTIONAL_API, USED_API
from headrace.errors import EngineError, RequestError
from headrace.slots.slot import NUM_LANES
from helpers.fake_plans import FILL_CONFIG, double_plan, fill_plan
from helpers.trt_describe import describe
from helpers.trt_served import ALONE, TENSORS

if TYPE_CHECKING:
    from helpers.standin_rig import StandinRig

pytestmark = pytest.mark.gpu

LONG_NS = 20_000_000  # so long that what was enqueued at one time is in flight together


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs_gpu: None) -> Iterator[StandinRig]:
    """GPU 0 with the stand-in; in the end nothing may be open on it."""
    from helpers.standin_rig import StandinRig

    rig = StandinRig(tmp_path, monkeypatch)
    yield rig
    assert rig.finish() == []


def floats(*shape: int, seed: int = 0) -> Any:
    """Floats that a doubling does not round."""
    return np.random.default_rng(seed).integers(-999, 999, shape).astype(np.float32)


def graphs_on(more: str = "") -> str:
    """Switch graphs on."""
    return f"optimization {{ cuda {{ graphs: true {more} }} }}"


def alone(graph_specs: str = "") -> str:
    """With graphs, and every tensor written, so that requests can be let run alone."""
    return f"max_batch_size: 32 {graphs_on(graph_specs)} {TENSORS}"


def test_the_stand_in_is_the_fake(rig: StandinRig) -> None:
    """It offers the adapter's list and nothing else, as the fake does, whose classes it has."""
    import tensorrt

    offered = {
        owner: {line for line in lines if not line.startswith("__init__")}
        for owner, lines in describe(tensorrt).classes.items()
    }
    listed = {
        owner: {*USED_API.get(owner, ()), *OPTIONAL_API.get(owner, ())}
        for owner in {*USED_API, *OPTIONAL_API}
    }
    assert all(lines <= listed[owner] for owner, lines in offered.items())
    needed = {
        owner: {line for line in lines if not line.startswith("__init__")}
        for owner, lines in USED_API.items()
    }
    assert all(needed[owner] <= offered[owner] for owner in needed)


@pytest.mark.parametrize("config", ["", "graphs"])
def test_every_answer_is_its_own(rig: StandinRig, config: str) -> None:
    """Hundreds of requests of random rows over four slots: one right answer each, no leak."""
    rig.load(config=graphs_on() if config else "", num_slots=4)
    rng = random.Random(7)
    for seed in range(600):
        rig.submit(floats(rng.randint(1, 32), 4, seed=seed))
        if seed % 5 == 0:
            rig.run()
    rig.run()
    for asked in rig.asked:
        assert np.array_equal(asked.answer, 2 * asked.inputs[0])
    assert rig.blocks.num_leased == 0
    assert {run.profile for run in rig.world.runs} == {0, 1}
    if config:
        assert rig.model.graphs is not None
        assert rig.model.graphs.num_hits > 0
        assert "refused" not in rig.misses  # no capture had the set-up of a first run in it


def test_two_slots_overlap_and_two_lanes_do_not(rig: StandinRig) -> None:
    """By the GPU's own events: runs of two slots are in flight at once, of one slot in turn."""
    rig.world.wait_ns = LONG_NS
    rig.load(config=f"max_batch_size: 32 {TENSORS}", options=ALONE, num_slots=2)
    begin = rig.device.open_event(is_timed=True)
    stream = rig.device.open_stream()
    stream.record(begin)
    stream.synchronize()
    for seed in range(4):
        rig.submit(floats(4, 4, seed=seed))
    rig.scheduler.step(0.0)
    assert [len(slot.in_flight) for slot in rig.slots] == [2, 2]
    rig.run()

    def interval(slot: int, lane: int) -> tuple[float, float]:
        marks = rig.slots[slot].lanes[lane].marks
        return rig.device.elapsed_s(begin, marks[1]), rig.device.elapsed_s(begin, marks[2])

    runs = {(slot, lane): interval(slot, lane) for slot in range(2) for lane in range(NUM_LANES)}
    for lane in range(NUM_LANES):
        (start, end), (other_start, other_end) = runs[0, lane], runs[1, lane]
        assert max(start, other_start) < min(end, other_end)
    for slot in range(2):
        assert runs[slot, 0][1] <= runs[slot, 1][0]
    begin.close()
    stream.close()


def test_contexts_share_one_engine_and_no_memory(rig: StandinRig) -> None:
    """One load for all slots; a context each a profile; activations a slot, never shared."""
    rig.world.wait_ns = LONG_NS // 4  # between writing the activations and reading them
    rig.load(num_slots=4)
    assert len(rig.world.loads) == 1
    assert len(set(rig.world.activations)) == 4
    assert len(rig.world.activations) == 4 * 2
    asked = [rig.submit(floats(rows, 4, seed=rows)) for rows in (4, 16, 4, 16, 8, 32, 1, 9)]
    rig.run()
    for each in asked:
        assert np.array_equal(each.answer, 2 * each.inputs[0])


def test_the_profile_is_chosen_by_the_shape(rig: StandinRig) -> None:
    """The one that fits, the nearest of two that fit, and a text with the ranges when none does."""
    rig.load(num_slots=1)
    for rows, profile in ((1, 0), (7, 0), (8, 0), (9, 1), (32, 1)):
        rig.world.runs.clear()
        rig.ask(floats(rows, 4))
        assert [run.profile for run in rig.world.runs] == [profile]
    with pytest.raises(RequestError, match=r"'x' has shape \[33, 4\], expected \[1..8, 4\] or"):
        rig.submit(floats(33, 4))


def test_a_refused_enqueue_is_one_requests_error(rig: StandinRig) -> None:
    """It has TensorRT's own words; what comes after it is served by the same slot."""
    rig.load(num_slots=1)
    rig.world.refusals["execute_async_v3"] = "the engine is out of luck"
    refused = rig.submit(floats(4, 4))
    rig.run()
    assert isinstance(refused.error, EngineError)
    assert "the engine is out of luck" in str(refused.error)
    assert np.array_equal(rig.ask(floats(4, 4)), 2 * floats(4, 4))


def test_an_empty_batch_is_served(rig: StandinRig) -> None:
    """No rows where the profile takes none: an answer of no rows, and nothing is launched."""
    plan = double_plan()
    plan["profiles"][0]["x"][0] = [0, 4]
    rig.load(plan, num_slots=1)
    assert rig.ask(floats(0, 4)).shape == (0, 4)


def test_values_of_shape_tensors_decide_the_output(rig: StandinRig) -> None:
    """They lie in host memory of the lane; each request has its own, two lanes in flight or not."""
    rig.load(fill_plan(), FILL_CONFIG, num_slots=2)
    x = np.arange(5, dtype=np.float32)
    wanted = [(1, 1), (2, 3), (4, 4), (2, 3), (3, 2), (1, 4), (4, 1), (2, 2)]
    asked = [rig.submit(x, np.array(size, np.int64)) for size in wanted]
    rig.run()
    for each, size in zip(asked, wanted, strict=True):
        assert np.array_equal(each.answer, np.full(size, 10.0, np.float32))
    with pytest.raises(RequestError, match=r"'size' has the values \[2, 9\]"):
        rig.submit(x, np.array([2, 9], np.int64))


def test_memory_is_told_by_kind(rig: StandinRig) -> None:
    """Weights once, activations a slot, inputs and outputs a lane, and blocks."""
    footprint = rig.load(num_slots=3).footprint
    assert footprint is not None
    told = {kind: read() for kind, read in footprint.by_kind().items()}
    assert told["weights"] == 12345
    assert told["contexts"] == 3 * 4000
    memories = [lane.memory for slot in rig.slots for lane in slot.lanes]
    assert told["io"] == sum(memory.size_bytes for memory in memories if memory is not None)
    assert told["io"] >= 3 * NUM_LANES * (2 * 16 * 4 * 4)
    assert told["blocks"] > 0


def test_a_replay_equals_a_plain_run(rig: StandinRig) -> None:
    """Graphs of the optima are there at load, on every lane; replays enqueue nothing anew."""
    model = rig.load(config=alone(), options=ALONE, num_slots=2)
    assert model.graphs is not None
    assert model.graphs.num_captured == 2 * NUM_LANES * 2
    num_runs = len(rig.world.runs)
    for seed in range(50):
        for rows in (4, 16):
            rig.submit(floats(rows, 4, seed=seed))
        if seed % 3 == 0:
            rig.run()
    rig.run()
    for asked in rig.asked:
        assert np.array_equal(asked.answer, 2 * asked.inputs[0])
    assert len(rig.world.runs) == num_runs
    assert (model.graphs.num_hits, rig.misses) == (100, {})


def test_graphs_are_captured_for_what_the_configuration_names(rig: StandinRig) -> None:
    """A graph_spec is captured at load beside the optima, and so a hit at once."""
    five = 'graph_spec { batch_size: 5 input { key: "x" value { dim: [ 4 ] } } }'
    named = alone(f"{five} graph_spec {{ batch_size: 20 }}")
    model = rig.load(config=named, options=ALONE, num_slots=1)
    assert model.graphs is not None
    assert model.graphs.num_captured == NUM_LANES * 4
    for rows in (5, 20, 4, 16):
        assert np.array_equal(rig.ask(floats(rows, 4)), 2 * floats(rows, 4))
    assert (model.graphs.num_hits, rig.misses) == (4, {})


def test_fewer_rows_are_padded_to_a_graph(rig: StandinRig) -> None:
    """Requests of 3 to 8 rows replay the graph of 8, and each gets its own rows back."""
    named = alone("graph_spec { batch_size: 8 graph_lower_bound { batch_size: 3 } }")
    model = rig.load(config=named, options=ALONE, num_slots=2)
    assert model.graphs is not None
    for seed in range(60):
        rig.submit(floats(3 + seed % 6, 4, seed=seed))
        if seed % 7 == 0:
            rig.run()
    rig.run()
    for asked in rig.asked:
        assert np.array_equal(asked.answer, 2 * asked.inputs[0])
    assert (model.graphs.num_hits, rig.misses) == (60, {})


def test_a_shape_in_use_is_captured_while_serving(rig: StandinRig) -> None:
    """After some plain runs of a new shape, without any call but the requests themselves."""
    model = rig.load(config=graphs_on(), num_slots=1)
    assert model.graphs is not None
    for seed in range(6):
        assert np.array_equal(rig.ask(floats(7, 4, seed=seed)), 2 * floats(7, 4, seed=seed))
    assert rig.misses == {"new": 2}
    assert model.graphs.num_hits == 4
    assert [run.is_captured for run in rig.world.runs[-3:]] == [False, False, True]


@pytest.mark.parametrize("how", ["refuse", "half", "empty"])
def test_a_capture_that_fails_leaves_the_stream_usable(rig: StandinRig, how: Any) -> None:
    """Refused, broken half-way or empty: the batch runs plainly, and so do later ones."""
    model = rig.load(config=graphs_on(), num_slots=2)
    assert model.graphs is not None
    rig.world.break_capture = how
    for seed in range(12):
        assert np.array_equal(rig.ask(floats(6, 4, seed=seed)), 2 * floats(6, 4, seed=seed))
    assert rig.misses["refused"] > 0
    rig.world.break_capture = ""
    num_hits = model.graphs.num_hits
    for seed in range(12):
        assert np.array_equal(rig.ask(floats(5, 4, seed=seed)), 2 * floats(5, 4, seed=seed))
    assert model.graphs.num_hits > num_hits
    rig.device.check()


def test_a_capture_with_set_up_in_it_fails_and_does_no_harm(rig: StandinRig) -> None:
    """The stand-in allocates under new shapes, as TensorRT does: why a plain run comes first."""
    from headrace.device.base import CapturableStream

    model = rig.load(num_slots=1)
    stream = rig.device.open_stream()
    assert isinstance(stream, CapturableStream)
    context = model._engine.open_context(stream)
    layout = model.plan([(6, 4)], [96])
    memory = rig.device.alloc_device(layout.size_bytes)
    binding = context.bind(
        layout,
        [memory.ptr + at for at in layout.input_offsets],
        [memory.ptr + at for at in layout.output_offsets],
    )
    with pytest.raises(EngineError, match="the set-up for new shapes failed"):
        stream.capture(lambda: context.enqueue(binding))
    context.enqueue(binding)
    stream.synchronize()
    graph = stream.capture(lambda: context.enqueue(binding))
    graph.launch()
    stream.synchronize()
    graph.close()
    context.close()
    memory.close()
    stream.close()


def test_a_graph_that_replays_something_else_is_given_up_at_load(rig: StandinRig) -> None:
    """It was captured without complaint, but leaves the outputs as they were."""
    rig.world.break_capture = "stale"
    model = rig.load(config=graphs_on(), num_slots=1)
    assert model.graphs is not None
    assert model.graphs.num_captured == 0
    for rows in (4, 16):
        assert np.array_equal(rig.ask(floats(rows, 4)), 2 * floats(rows, 4))
    assert (model.graphs.num_hits, rig.misses) == (0, {"refused": 2})


def test_graphs_that_cannot_be_captured_on_zeros_are_left_to_traffic(
    rig: StandinRig, caplog: pytest.LogCaptureFixture
) -> None:
    """A model may refuse zeros: it is served all the same."""
    rig.world.always_refuse["execute_async_v3"] = "zeros are no picture"
    with caplog.at_level(logging.INFO):
        rig.load(config=graphs_on())
    assert "no CUDA graph was captured on zeros" in caplog.text
    refused = rig.submit(floats(4, 4))
    rig.run()
    assert isinstance(refused.error, EngineError)
    rig.world.always_refuse.clear()
    assert np.array_equal(rig.ask(floats(4, 4)), 2 * floats(4, 4))


def test_metrics_tell_memory_and_graphs(rig: StandinRig) -> None:
    """By model and version, with the kind or the reason."""
    from headrace.metrics.exposition import render
    from headrace.observe import observe_resources

    model = rig.load(config=graphs_on(), num_slots=1)
    observe_resources(rig.metrics, model, {"model": "m", "version": "1"})
    for _ in range(3):
        rig.ask(floats(4, 4))
    rig.ask(floats(5, 4))
    text = render(rig.metrics.registry)[0].decode()
    assert 'headrace_graph_hits_total{model="m",version="1"} 3.0' in text
    assert 'headrace_graph_misses_total{model="m",reason="new",version="1"} 1.0' in text
    assert 'headrace_model_memory_bytes{kind="weights",model="m",version="1"} 12345.0' in text
