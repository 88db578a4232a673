"""Output shapes of a plan: right, remembered, bounded, and told by ranges when refused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.engines import trt_shapes
from headrace.engines.trt import TrtOptions
from headrace.errors import EngineError, RequestError
from helpers.fake_plans import double_plan, fill_plan, tensor
from helpers.trt_rig import Rig


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    found = Rig(tmp_path, monkeypatch)
    found.install()
    return found


def size(*values: int) -> list[bytes]:
    return [np.array(values, np.int64).tobytes()]


def test_shapes_follow_the_engine_and_not_the_inputs(rig: Rig) -> None:
    """What shapes the outputs have is TensorRT's to say, also where they are not the inputs'."""
    tensors = [tensor("x", "INPUT", [-1, 4]), tensor("y", "OUTPUT", [-1])]
    engine = rig.open(double_plan(op="row_sums", tensors=tensors))
    assert engine.output_shapes([(3, 4)]) == ((3,),)
    assert engine.output_shapes([(32, 4)]) == ((32,),)


def test_a_shape_seen_before_is_not_asked_again(rig: Rig) -> None:
    """The second request of a shape costs TensorRT nothing."""
    engine = rig.open(double_plan())
    first = engine.output_shapes([(3, 4)])
    rig.world.calls.clear()
    assert engine.output_shapes(((3, 4),)) is first
    engine.check_inputs([(3, 4)])
    assert rig.world.calls == []


def test_what_is_remembered_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends ever new shapes does not fill the server's memory."""
    monkeypatch.setattr(trt_shapes, "MAX_REMEMBERED", 3)
    engine = rig.open(double_plan())
    for count in [*range(1, 33), 1, 32]:
        assert engine.output_shapes([(count, 4)]) == ((count, 4),)
    rig.world.calls.clear()
    engine.output_shapes([(32, 4)])
    engine.output_shapes([(1, 4)])
    assert rig.world.calls == []
    engine.output_shapes([(2, 4)])
    assert rig.world.calls == ["shape x"]


def test_shapes_that_no_profile_takes_are_the_callers_fault(rig: Rig) -> None:
    """Both ways of asking refuse with the allowed ranges, before TensorRT is asked."""
    engine = rig.open(double_plan())
    rig.world.calls.clear()
    for ask in (engine.check_inputs, engine.output_shapes):
        with pytest.raises(RequestError, match=r"\[33, 4\], expected \[1..8, 4\] or \[8..32, 4\]"):
            ask([(33, 4)])
    assert rig.world.calls == []


def test_only_the_profiles_in_use_take_shapes(rig: Rig) -> None:
    """A shape of a profile that is not in use is refused, from the start or once narrowed."""
    for engine in (rig.open(double_plan(), options=TrtOptions(profiles=(0,))),):
        with pytest.raises(RequestError):
            engine.output_shapes([(20, 4)])
    engine = rig.open(double_plan())
    assert engine.output_shapes([(20, 4)]) == ((20, 4),)
    engine.use_profiles((0,))
    for ask in (engine.check_inputs, engine.output_shapes):
        with pytest.raises(RequestError):
            ask([(20, 4)])


def test_values_of_shape_tensors_decide(rig: Rig) -> None:
    """With shape tensors among the inputs the shapes are unknown until their values come."""
    engine = rig.open(fill_plan(), options=TrtOptions(takes_shape_tensors=True))
    shapes = [(3,), (2,)]
    engine.check_inputs(shapes)
    assert engine.output_shapes(shapes) is None
    assert engine.output_shapes(shapes, size(2, 3)) == ((2, 3),)
    assert engine.output_shapes(shapes, size(4, 1)) == ((4, 1),)
    assert engine.output_shapes(shapes) is None


def test_values_outside_the_profile_are_the_callers_fault(rig: Rig) -> None:
    """Values that the plan was not built for are refused by name and range."""
    engine = rig.open(fill_plan(), options=TrtOptions(takes_shape_tensors=True))
    with pytest.raises(RequestError, match=r"'size' has the values \[5, 1\].*\[1..4, 1..4\]"):
        engine.output_shapes([(3,), (2,)], size(5, 1))


@pytest.mark.parametrize("method", ["get_tensor_shape", "set_input_shape", "set_tensor_address"])
def test_a_refusal_is_an_error_and_not_remembered(rig: Rig, method: str) -> None:
    """Where TensorRT cannot tell, its reason is raised, and the next question is asked anew."""
    engine = rig.open(fill_plan(), options=TrtOptions(takes_shape_tensors=True))
    rig.world.refusals[method] = "not today"
    with pytest.raises(EngineError, match="not today"):
        engine.output_shapes([(3,), (2,)], size(2, 3))
    assert engine.output_shapes([(3,), (2,)], size(2, 3)) == ((2, 3),)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_that_ask_at_once_get_their_own_answers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spare context is one thread's at a time: no answer is another question's."""
    monkeypatch.setattr(trt_shapes, "MAX_REMEMBERED", 1)
    engine = rig.open(double_plan())
    wrong: list[tuple[int, object]] = []
    start = threading.Barrier(8)

    def ask(first: int) -> None:
        start.wait()
        for turn in range(200):
            count = (first + 7 * turn) % 32 + 1
            found = engine.output_shapes([(count, 4)])
            if found != ((count, 4),):
                wrong.append((count, found))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
