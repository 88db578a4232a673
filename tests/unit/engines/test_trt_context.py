"""Running a plan: results, lanes, profiles, many contexts, refusals and the order of freeing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.engines.layout import plan_layout
from headrace.engines.trt import TrtEngine, TrtOptions
from headrace.errors import DeviceError, EngineError, RequestError
from helpers.fake_plans import double_plan, fill_plan, tensor
from helpers.trt_rig import Array, Rig, RigSlot

EMPTY_PROFILE = [{"x": [[0, 4], [4, 4], [8, 4]]}]


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    found = Rig(tmp_path, monkeypatch)
    found.install()
    return found


def rows(count: int, start: float = 0.0) -> Array:
    """(count, 4) float32, every value its own."""
    return np.arange(start, start + 4 * count, dtype=np.float32).reshape(count, 4)


def close(rig: Rig, engine: TrtEngine, *slots: RigSlot) -> None:
    """Close in the order of a shutdown, and see that nothing is left."""
    for slot in slots:
        slot.close()
    engine.close()
    assert rig.device.leaks() == []


def test_outputs_are_right_and_come_with_the_stream(rig: Rig) -> None:
    """The outputs are those of the computation, and not there before the stream came to it."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    lane = slot.lane([rows(3)])
    slot.enqueue(lane)
    assert not np.array_equal(lane.outputs()[0], 2 * rows(3))
    slot.stream.synchronize()
    assert np.array_equal(lane.outputs()[0], 2 * rows(3))
    close(rig, engine, slot)


def test_two_lanes_of_one_context_are_in_flight_at_once(rig: Rig) -> None:
    """A lane that is enqueued behind another, with other shapes and addresses, disturbs nothing."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    lanes = [slot.lane([rows(3)]), slot.lane([rows(5, 100)])]
    for _ in range(3):
        for lane in lanes:
            slot.enqueue(lane)
    slot.stream.synchronize()
    assert np.array_equal(lanes[0].outputs()[0], 2 * rows(3))
    assert np.array_equal(lanes[1].outputs()[0], 2 * rows(5, 100))
    close(rig, engine, slot)


def test_what_is_set_already_is_not_set_again(rig: Rig) -> None:
    """The same binding again sets nothing; another lane of the same shape sets addresses alone."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    first, second = slot.lane([rows(3)]), slot.lane([rows(3)])
    calls = rig.world.calls
    calls.clear()
    slot.enqueue(first)
    assert calls == ["shape x", "address x", "address y"]
    calls.clear()
    slot.enqueue(first)
    assert calls == []
    slot.enqueue(second)
    assert calls == ["address x", "address y"]
    close(rig, engine, slot)


def test_asking_for_other_output_shapes_does_not_touch_a_slot(rig: Rig) -> None:
    """Shapes that other requests ask about are tried on a spare context, never on a slot's."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    lane = slot.lane([rows(3)])
    slot.enqueue(lane)
    engine.output_shapes([(7, 4)])
    rig.world.calls.clear()
    slot.enqueue(lane)
    assert rig.world.calls == []
    close(rig, engine, slot)


def test_rows_choose_the_profile(rig: Rig) -> None:
    """Batches of either profile run in one slot, each on the context of its profile."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    for count in (3, 20, 8, 32, 1):
        assert np.array_equal(slot.run([rows(count, count)])[0], 2 * rows(count, count))
    close(rig, engine, slot)


def test_contexts_of_a_slot_share_memory_and_slots_do_not(rig: Rig) -> None:
    """One stream orders its contexts, so they share activation memory; two slots never do."""
    engine = rig.open(double_plan())
    slots = [RigSlot(rig, engine) for _ in range(2)]
    first, second, third, fourth = rig.world.activations
    assert first == second != third == fourth
    assert all(address % 512 == 0 for address in rig.world.activations)
    close(rig, engine, *slots)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.data())
def test_slots_in_any_interleaving_keep_their_own_results(rig: Rig, data: st.DataObject) -> None:
    """Contexts of one engine on several streams, enqueued and finished in any order, never mix."""
    rig.renew()
    rig.install()
    engine = rig.open(double_plan())
    slots = [RigSlot(rig, engine) for _ in range(3)]
    expected: list[tuple[Any, Array]] = []
    for number in range(data.draw(st.integers(1, 12))):
        slot = data.draw(st.sampled_from(slots))
        values = rows(data.draw(st.integers(1, 32)), 1000.0 * number)
        lane = slot.lane([values])
        slot.enqueue(lane)
        expected.append((lane, 2 * values))
        for choice in data.draw(st.lists(st.sampled_from(slots), max_size=4)):
            if choice.stream.items:
                rig.device.complete_next(choice.stream)
    rig.device.run_until_idle()
    for lane, right in expected:
        assert np.array_equal(lane.outputs()[0], right)
    close(rig, engine, *slots)


def test_all_contexts_are_of_one_engine(rig: Rig) -> None:
    """Opening slots does not load the plan again: the weights are on the GPU once."""
    engine = rig.open(double_plan())
    slots = [RigSlot(rig, engine) for _ in range(4)]
    assert len(rig.world.loads) == 1
    close(rig, engine, *slots)


def test_a_context_that_the_shared_engine_refuses_gets_its_own(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Where TensorRT gives no further context, the slot loads the plan again and tells the cost."""
    engine = rig.open(double_plan(), options=TrtOptions(profiles=(0,)))
    slots = [RigSlot(rig, engine)]
    rig.world.max_contexts = 2  # the spare one and the first slot's
    with caplog.at_level(logging.WARNING):
        slots.append(RigSlot(rig, engine))
    assert len(rig.world.loads) == 2
    assert "an engine of its own, with 12345 bytes of weights" in caplog.text
    assert "has been chosen by another" in caplog.text
    lanes = [slot.lane([rows(2, 50.0 * i)]) for i, slot in enumerate(slots)]
    for slot, lane in zip(slots, lanes, strict=True):
        slot.enqueue(lane)
    rig.device.run_until_idle()
    for i, lane in enumerate(lanes):
        assert np.array_equal(lane.outputs()[0], 2 * rows(2, 50.0 * i))
    slots[1].close()
    assert rig.world.journal[-2:] == ["engine freed", "runtime freed"]
    close(rig, engine, slots[0])


def test_contexts_of_a_failed_try_are_freed_before_the_next(rig: Rig) -> None:
    """Before an engine of its own is loaded, what the shared one did give is given back."""
    engine = rig.open(double_plan())
    rig.world.max_contexts = 3  # two spare ones, and one of the two that a slot wants
    freed: list[list[str]] = []
    rig.world.on_load = lambda: freed.append(rig.world.journal.copy())
    slot = RigSlot(rig, engine)
    assert freed == [["context freed"]]
    assert np.array_equal(slot.run([rows(20)])[0], 2 * rows(20))
    close(rig, engine, slot)


@pytest.mark.parametrize(
    "method", ["create_execution_context", "set_optimization_profile_async", "set_device_memory"]
)
def test_a_context_that_cannot_be_opened_leaves_nothing(rig: Rig, method: str) -> None:
    """A refusal while opening is told with its reason; what was opened is given back at once."""
    engine = rig.open(double_plan(), options=TrtOptions(profiles=(1,)))
    stream = rig.device.open_stream()
    rig.world.always_refuse = {method: "out of luck"}
    with pytest.raises(EngineError, match="out of luck") as kept:
        engine.open_context(stream)
    rig.world.always_refuse = {}
    assert kept.value.__cause__ is None
    freed = rig.world.journal.copy()
    stream.close()
    close(rig, engine)
    assert rig.world.journal[len(freed) :] == ["context freed", "engine freed", "runtime freed"]


def test_no_memory_for_a_context_leaves_nothing(rig: Rig) -> None:
    """A slot for whose activations there is no device memory fails alone."""
    engine = rig.open(double_plan())
    stream = rig.device.open_stream()
    rig.device.fail_alloc()
    with pytest.raises(DeviceError, match="4000 bytes"):
        engine.open_context(stream)
    slot = RigSlot(rig, engine)
    assert np.array_equal(slot.run([rows(1)])[0], 2 * rows(1))
    stream.close()
    close(rig, engine, slot)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("execute_async_v3", "to enqueue"),
        ("set_input_shape", r"the shape \[3, 4\] of input 'x'"),
        ("set_tensor_address", "the address of tensor 'x'"),
    ],
)
def test_a_refused_enqueue_is_an_error_and_the_next_one_is_right(
    rig: Rig, method: str, words: str
) -> None:
    """A False never passes for an answer: its reason is raised, nothing runs, the slot goes on."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    lane = slot.lane([rows(3)])
    rig.world.refusals[method] = "first reason"
    with pytest.raises(EngineError, match=f"TensorRT refuses {words}: first reason"):
        slot.context.enqueue(lane.binding)
    assert "enqueued" not in rig.world.journal
    assert slot.stream.items == type(slot.stream.items)()
    slot.enqueue(lane)
    slot.stream.synchronize()
    assert np.array_equal(lane.outputs()[0], 2 * rows(3))
    close(rig, engine, slot)


@pytest.mark.parametrize("method", ["set_input_shape", "set_tensor_address"])
def test_what_was_set_before_a_refusal_is_set_again(rig: Rig, method: str) -> None:
    """After a refusal nothing that was set is relied on, also by a lane that ran before it."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    lane, refused = slot.lane([rows(3)]), slot.lane([rows(5)])
    slot.enqueue(lane)
    rig.world.refusals[method] = "out of luck"
    with pytest.raises(EngineError, match="out of luck"):
        slot.context.enqueue(refused.binding)
    slot.enqueue(lane)
    slot.stream.synchronize()
    assert np.array_equal(lane.outputs()[0], 2 * rows(3))
    close(rig, engine, slot)


def test_a_refusal_without_a_reason_is_still_an_error(rig: Rig) -> None:
    """A False that nothing was reported for is raised all the same."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    lane = slot.lane([rows(3)])
    rig.world.is_silent = True
    rig.world.refusals["execute_async_v3"] = "kept to itself"
    with pytest.raises(EngineError, match="to enqueue: it gave no reason"):
        slot.context.enqueue(lane.binding)
    close(rig, engine, slot)


def test_a_reason_belongs_to_its_own_slot(rig: Rig) -> None:
    """What one context reports is never told as the reason of another."""
    engine = rig.open(double_plan())
    slots = [RigSlot(rig, engine) for _ in range(2)]
    lanes = [slot.lane([rows(3)]) for slot in slots]
    for number in (0, 1):
        rig.world.refusals["execute_async_v3"] = f"reason {number}"
        with pytest.raises(EngineError, match=f"reason {number}$"):
            slots[number].context.enqueue(lanes[number].binding)
    close(rig, engine, *slots)


def test_a_report_beside_success_is_logged_and_not_kept(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that came with a True is told to the operator, and not to the next request."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    lane = slot.lane([rows(3)])
    rig.world.reports["execute_async_v3"] = "something odd"
    with caplog.at_level(logging.WARNING):
        slot.enqueue(lane)
    assert "TensorRT enqueued, and reported: something odd" in caplog.text
    rig.world.refusals["execute_async_v3"] = "the true reason"
    with pytest.raises(EngineError, match="the true reason"):
        slot.context.enqueue(lane.binding)
    close(rig, engine, slot)


def test_a_dead_gpu_is_told_before_the_refusal_that_it_caused(rig: Rig) -> None:
    """When the device is dead the enqueue raises the sticky error, caused by TensorRT's words."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    lane = slot.lane([rows(3)])
    rig.device.fail_device()
    rig.world.refusals["execute_async_v3"] = "CUDA error 700"
    with pytest.raises(DeviceError) as caught:
        slot.context.enqueue(lane.binding)
    assert caught.value.sticky
    assert "CUDA error 700" in str(caught.value.__cause__)


def test_empty_tensors_have_addresses_that_are_not_null(rig: Rig) -> None:
    """A batch of no rows runs, though there is no memory to point to."""
    engine = rig.open(double_plan(profiles=EMPTY_PROFILE, memory=[0]))
    slot = RigSlot(rig, engine)
    shape = ((0, 4),)
    layout = plan_layout(shape, [0], engine.output_shapes(shape), [0])
    slot.context.enqueue(slot.context.bind(layout, [0], [0]))
    slot.stream.synchronize()
    assert rig.world.journal == ["enqueued"]
    close(rig, engine, slot)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input_ptrs": [0]}, "'x' is at 0x0, expected a multiple of 256 that is not null"),
        ({"output_ptrs": [512 + 128]}, "'y' is at 0x280, expected a multiple of 256"),
        ({"input_shapes": [(9, 4)]}, r"'x' has shape \[9, 4\], expected \[1..8, 4\]"),
        ({"input_sizes": [47]}, r"'x' of shape \[3, 4\] has 47 bytes in the layout, expected 48"),
        ({"output_sizes": [64]}, r"'y' of shape \[3, 4\] has 64 bytes in the layout, expected 48"),
        ({"output_shapes": [(4, 4)]}, r"shapes \[\[4, 4\]\], but they will be \[\[3, 4\]\]"),
        ({"output_shapes": None}, "outputs of unknown shape"),
    ],
)
def test_a_binding_that_would_go_wrong_is_refused(
    rig: Rig, change: dict[str, Any], words: str
) -> None:
    """Addresses, sizes and shapes that would make the GPU read or write elsewhere are not bound."""
    engine = rig.open(double_plan(), options=TrtOptions(profiles=(0,)))
    slot = RigSlot(rig, engine)
    given_: dict[str, Any] = {
        "input_shapes": [(3, 4)],
        "input_sizes": [48],
        "output_shapes": [(3, 4)],
        "output_sizes": [48],
        "input_ptrs": [512],
        "output_ptrs": [1024],
    } | change
    ptrs = given_.pop("input_ptrs"), given_.pop("output_ptrs")
    if given_["output_shapes"] is None:
        given_["output_sizes"] = []
    with pytest.raises(EngineError, match=words):
        slot.context.bind(plan_layout(**given_), *ptrs)
    close(rig, engine, slot)


def test_values_of_shape_tensors_are_read_at_enqueue(rig: Rig) -> None:
    """A shape tensor lies on the host; its values, not its address, decide each run anew."""
    engine = rig.open(fill_plan(), options=TrtOptions(takes_shape_tensors=True))
    slot = RigSlot(rig, engine)
    x, size = np.ones(3, np.float32), np.array([2, 3], np.int64)
    lane = slot.lane([x, size], engine.output_shapes([(3,), (2,)], [size.tobytes()]))
    slot.enqueue(lane)
    at = lane.layout.input_offsets[1]
    lane.block.view[at : at + 16] = np.array([3, 2], np.int64).tobytes()
    with pytest.raises(EngineError, match=r"'y' will have shape \[3, 2\].*made for \[2, 3\]"):
        slot.context.enqueue(lane.binding)
    slot.stream.synchronize()
    assert np.array_equal(lane.outputs()[0], np.full((2, 3), 3, np.float32))
    assert rig.world.journal == ["enqueued"]
    close(rig, engine, slot)


def test_contexts_are_freed_before_their_memory_and_the_engine_last(rig: Rig) -> None:
    """Freeing goes context, memory, engine, runtime; the fake fails when memory goes first."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    slot.run([rows(3)])
    rig.world.journal.clear()
    slot.context.close()
    assert rig.world.journal == ["context freed"] * 2
    slot.close()
    engine.close()
    assert rig.world.journal == ["context freed"] * 4 + ["engine freed", "runtime freed"]
    engine.close()
    slot.context.close()
    assert len(rig.world.journal) == 6


def test_a_plan_of_fixed_shapes_sets_none(rig: Rig) -> None:
    """Without dynamic dimensions only addresses are set, and other shapes are refused."""
    tensors = [tensor("x", "INPUT", [2, 4]), tensor("y", "OUTPUT", [2, 4])]
    engine = rig.open(double_plan(tensors=tensors, profiles=[], memory=[0]))
    slot = RigSlot(rig, engine)
    rig.world.calls.clear()
    assert np.array_equal(slot.run([rows(2)])[0], 2 * rows(2))
    assert rig.world.calls == ["address x", "address y"]
    assert engine.profile_rows == (2,)
    with pytest.raises(RequestError, match=r"'x' has shape \[3, 4\], expected \[2, 4\]"):
        engine.check_inputs([(3, 4)])
    slot.context.close()
    with pytest.raises(EngineError, match="context is closed"):
        slot.context.enqueue(slot.lanes[0].binding)
    close(rig, engine, slot)


def test_use_after_close_is_one_known_error(rig: Rig) -> None:
    """A context or an engine that was closed says so."""
    engine = rig.open(double_plan())
    slot = RigSlot(rig, engine)
    lane = slot.lane([rows(3)])
    slot.context.close()
    with pytest.raises(EngineError, match="context is closed"):
        slot.context.enqueue(lane.binding)
    engine.close()
    with pytest.raises(EngineError, match="engine is closed"):
        engine.output_shapes([(5, 4)])
    with pytest.raises(EngineError, match="engine is closed"):
        engine.open_context(slot.stream)
    slot.close()
