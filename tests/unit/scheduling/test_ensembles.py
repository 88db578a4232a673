"""Ensembles in virtual time: steps in their order, one end each, and no memory kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.engines.batching_spec import BatchingSpec
from headrace.errors import (
    AbandonedError,
    EngineError,
    ExpiredError,
    NoSlotError,
    OverloadedError,
    RequestError,
    RetiredError,
    UnavailableError,
)
from helpers.ensemble_rig import (
    Asked,
    Bytes,
    EnsembleRig,
    ensemble_text,
    mixed,
    step_text,
)

CHAIN = ensemble_text(
    ["in"],
    ["out"],
    [step_text("a", {"x0": "in"}, {"y0": "t"}), step_text("b", {"x0": "t"}, {"y0": "out"})],
)
DIAMOND = ensemble_text(
    ["in"],
    ["out", "left"],
    [
        step_text("join", {"x0": "right", "x1": "left", "x2": "in"}, {"y0": "out"}),
        step_text("b", {"x0": "t"}, {"y0": "left"}),
        step_text("b", {"x0": "u"}, {"y0": "right"}),
        step_text("split", {"x0": "in"}, {"y0": "t", "y1": "u"}),
    ],
)
PAGE = 4096  # the smallest block
BATCHES = BatchingSpec(max_rows=8)


def numbers(rows: int = 1, width: int = 4, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (rows, width), np.uint8)


def after_chain(x: Bytes) -> Bytes:
    return mixed([mixed([x], 1)], 1)


def after_diamond(x: Bytes) -> list[Bytes]:
    left, right = (mixed([mixed([x], number)], 1) for number in (1, 2))
    return [mixed([right, left, x], 1), left]


def chain_rig(**options: Any) -> EnsembleRig:
    rig = EnsembleRig(**options)
    rig.add(rig.model("a"), rig.model("b"))
    rig.ensemble(CHAIN)
    return rig


def diamond_rig(**options: Any) -> EnsembleRig:
    rig = EnsembleRig(**options)
    rig.add(rig.model("split", 1, 2), rig.model("b", num_slots=2), rig.model("join", 3))
    rig.ensemble(DIAMOND)
    return rig


def in_flight(rig: EnsembleRig) -> dict[str, int]:
    """How many lanes of each model are at work."""
    lines = {model.spec.name: model.line for model in rig.catalog.models()}
    flights = {
        name: sum(len(slot.in_flight) for slot in line.pool.slots) for name, line in lines.items()
    }
    return {name: count for name, count in flights.items() if count}


def until_in_flight(rig: EnsembleRig, wanted: dict[str, int]) -> None:
    """Let the core and the device work until exactly this is in flight."""
    for _ in range(1000):
        while rig.step():
            pass
        if in_flight(rig) == wanted:
            return
        assert rig.device.step(), f"never {wanted}, but {in_flight(rig)}"


def answer(asked: Asked) -> list[Bytes]:
    assert not asked.errors, asked.errors
    (outputs,) = asked.answers
    return outputs


def error(asked: Asked) -> Exception:
    assert not asked.answers
    (only,) = asked.errors
    return only


def test_a_chain_gives_what_its_models_give() -> None:
    """Each step works on what the one before gave."""
    rig = chain_rig()
    x = numbers(3)
    asked = rig.submit("e", x)
    rig.run()
    assert np.array_equal(answer(asked)[0], after_chain(x))
    rig.close()


@pytest.mark.parametrize("is_unified", [False, True])
def test_steps_whose_inputs_are_there_run_at_once(is_unified: bool) -> None:
    """Whatever their order in the configuration; an input that is needed late is kept."""
    rig = diamond_rig(is_unified=is_unified)
    x = numbers(2)
    asked = rig.submit("e", x)
    until_in_flight(rig, {"b": 2})
    rig.run()
    for got, expected in zip(answer(asked), after_diamond(x), strict=True):
        assert np.array_equal(got, expected)
    rig.close()


def test_many_at_a_time_in_hardly_any_staging_memory() -> None:
    """Two blocks for all steps of twelve requests: nobody waits for a block that another keeps."""
    rig = diamond_rig(budget_bytes=2 * PAGE)
    asked = [rig.submit("e", numbers(1, seed=seed)) for seed in range(12)]
    rig.run()
    for each in asked:
        (x,) = each.inputs
        for got, expected in zip(answer(each), after_diamond(x), strict=True):
            assert np.array_equal(got, expected)
    rig.close()


def test_the_models_batch_the_steps_of_many() -> None:
    """Twelve requests, and fewer runs: dynamic batching is the models' own."""
    rig = EnsembleRig()
    rig.add(rig.model("a", batching=BATCHES), rig.model("b", batching=BATCHES))
    rig.ensemble(CHAIN)
    asked = [rig.submit("e", numbers(seed=seed)) for seed in range(12)]
    rig.run()
    for each in asked:
        assert np.array_equal(answer(each)[0], after_chain(*each.inputs))
    runs = rig.metrics.model("b", "1").snapshot()
    assert runs.inference_count == 12
    assert runs.execution_count < 12
    rig.close()


def test_each_is_counted_where_it_ran() -> None:
    """A model's steps are its requests; the ensemble has what all of them took together."""
    rig = chain_rig()
    for seed in range(3):
        rig.submit("e", numbers(2, seed=seed))
    rig.run()
    for name in ("a", "b"):
        statistics = rig.metrics.model(name, "1").snapshot()
        assert (statistics.success.count, statistics.inference_count) == (3, 6)
    for asked in rig.asked:
        timing = asked.request.timing
        assert timing is not None
        assert timing.ended_at == pytest.approx(rig.clock(), abs=0.1)
        assert timing.started_at >= asked.request.staged_at >= asked.request.parsed_at
    rig.close()


@pytest.mark.parametrize("after", range(4))
def test_a_step_that_fails_ends_the_request_once(after: int) -> None:
    """The error names the step; those beside it are taken back; others are not touched."""
    rig = diamond_rig()
    rig.device.fail_launch(EngineError("no such thing"), after=after, is_refused=True)
    first = rig.submit("e", numbers())
    rig.run()
    where = {0: "step 3 (model 'split')", 3: "step 0 (model 'join')"}.get(after, "(model 'b')")
    assert isinstance(error(first), EngineError)
    assert str(error(first)).startswith("in ensemble 'e', step ")
    assert where in str(error(first))
    assert "no such thing" in str(error(first))
    second = rig.submit("e", numbers(seed=1))
    rig.run()
    assert np.array_equal(answer(second)[1], after_diamond(*second.inputs)[1])
    rig.close()


def test_the_caller_leaves() -> None:
    """Wherever the request is: what waits is taken back, what runs is dropped."""
    for wanted in ({"split": 1}, {"b": 2}, {"join": 1}):
        rig = diamond_rig()
        asked = rig.submit("e", numbers())
        until_in_flight(rig, wanted)
        rig.link.cancel(asked.request)
        assert isinstance(error(asked), AbandonedError)
        rig.link.cancel(asked.request)  # a second time does nothing
        rig.run()
        rig.close()


def test_the_caller_leaves_while_steps_wait() -> None:
    """Behind others in a queue, and for a block."""
    rig = diamond_rig(budget_bytes=PAGE)
    asked = [rig.submit("e", numbers(seed=seed)) for seed in range(3)]
    line = rig.catalog.find("split", "").line
    assert line.length == 3
    for each in asked[1:]:
        rig.link.cancel(each.request)
        assert isinstance(error(each), AbandonedError)
    assert line.length == 1
    rig.run()
    assert np.array_equal(answer(asked[0])[1], after_diamond(*asked[0].inputs)[1])
    rig.close()


def test_a_deadline_that_passes_between_two_steps() -> None:
    """The next step is not begun."""
    rig = chain_rig()
    asked = rig.submit("e", numbers(), deadline=0.0005)
    rig.run()
    assert isinstance(error(asked), ExpiredError)
    assert "step 1 (model 'b')" in str(error(asked))
    assert rig.metrics.model("b", "1").read().drops["expired"] == 1
    rig.close()


def test_who_cannot_come_in() -> None:
    """Too many, too much, too late; the first steps' own bounds hold as well."""
    rig = chain_rig(max_queue_size=2)
    rig.submit("e", numbers())
    rig.submit("e", numbers())
    with pytest.raises(OverloadedError, match="2 requests are in e"):
        rig.submit("e", numbers())
    rig.run()
    with pytest.raises(ExpiredError):
        rig.submit("e", numbers(), deadline=rig.clock())
    drops = rig.metrics.model("e", "1").read().drops
    assert (drops["queue_full"], drops["expired"]) == (1, 1)
    rig.close()


def test_a_version_that_was_unloaded_takes_nothing_more() -> None:
    """Who looked it up before is told so, and looks again."""
    rig = chain_rig()
    rig.catalog.find("e", "").line.retire()
    with pytest.raises(RetiredError, match="this version of e has been unloaded"):
        rig.submit("e", numbers())
    rig.close()


def test_what_is_kept_has_a_bound() -> None:
    """Inputs that are still needed, and results that wait for others, count."""
    rig = diamond_rig()
    ensembles = rig.scheduler.ensembles
    ensembles.max_held_bytes = 2 * PAGE + 8
    asked = [rig.submit("e", numbers(1, PAGE, seed)) for seed in range(2)]
    with pytest.raises(OverloadedError, match="raise --max-bytes-in-flight"):
        rig.submit("e", numbers(1, PAGE))
    rig.run()  # beside its own input, the first has no room for what one of its steps gave
    assert "bytes of inputs and results" in str(error(asked[0]))
    assert np.array_equal(answer(asked[1])[1], after_diamond(*asked[1].inputs)[1])
    assert rig.metrics.model("e", "1").read().failures["REJECTED"] == 2
    rig.close()


def test_a_model_is_replaced_in_the_midst() -> None:
    """A step that was begun is served by the old version, one that begins later by the new."""
    rig = EnsembleRig()
    old, new = rig.model("a"), rig.model("a", version=2)
    rig.add(old, rig.model("b"))
    text = ensemble_text(
        ["in"],
        ["out"],
        [step_text("a", {"x0": "in"}, {"y0": "t"}), step_text("a", {"x0": "t"}, {"y0": "out"})],
    )
    rig.ensemble(text)
    asked = rig.submit("e", numbers())
    until_in_flight(rig, {"a": 1})
    rig.scheduler.add_line(new.line)
    rig.catalog.serve("a", [new])
    rig.link.retire_line(old.line)
    rig.run()
    assert np.array_equal(answer(asked)[0], after_chain(*asked.inputs))
    for version in ("1", "2"):
        assert rig.metrics.model("a", version).snapshot().inference_count == 1
    assert rig.link.is_done_with(old.line)
    rig.close()


def test_a_model_is_unloaded_in_the_midst() -> None:
    """What is in ends with an error that says why, and the ensemble is not ready."""
    rig = chain_rig()
    asked = rig.submit("e", numbers())
    until_in_flight(rig, {"a": 1})
    (gone,) = rig.catalog.serve("b", [])
    rig.link.retire_line(gone.line)
    rig.run()
    assert isinstance(error(asked), UnavailableError)
    assert "it depends on 'b'" in str(error(asked))
    (entry,) = (each for each in rig.catalog.index() if each.name == "e")
    assert entry.state == "UNAVAILABLE"
    assert "it depends on 'b'" in entry.reason
    with pytest.raises(UnavailableError):
        rig.submit("e", numbers())
    rig.add(rig.model("b", version=3))
    again = rig.submit("e", numbers())
    rig.run()
    assert np.array_equal(answer(again)[0], after_chain(*again.inputs))
    rig.close()


def test_what_waits_for_a_model_that_goes_is_ended_at_once() -> None:
    """Nothing else has to happen for the ensemble's caller to be told."""
    rig = chain_rig()
    asked = [rig.submit("e", numbers(seed=seed)) for seed in range(4)]
    line = rig.catalog.find("a", "").line
    rig.link.drop_waiting(line, UnavailableError("a goes"))
    told = [each for each in asked if each.num_ends]
    assert told
    assert all("a goes" in str(error(each)) for each in told)
    rig.run()
    rig.close()


def test_the_server_stops() -> None:
    """What is in is served to its last step; what is not by the end of the grace is told so."""
    rig = chain_rig()
    first = rig.submit("e", numbers())
    until_in_flight(rig, {"a": 1})
    rig.link.refuse_new()
    with pytest.raises(UnavailableError, match="shutting down"):
        rig.submit("e", numbers())
    rig.run()
    assert np.array_equal(answer(first)[0], after_chain(*first.inputs))
    rig.close()

    rig = chain_rig()
    late = rig.submit("e", numbers())
    until_in_flight(rig, {"a": 1})
    rig.link.close()
    assert "shutting down" in str(error(late))
    rig.run()
    rig.close()


def test_the_device_dies() -> None:
    """Every request is told, once."""
    rig = diamond_rig()
    asked = [rig.submit("e", numbers(seed=seed)) for seed in range(3)]
    until_in_flight(rig, {"b": 2, "split": 2})
    rig.device.fail_device()
    for _ in range(3):
        rig.step()
    assert all(each.num_ends == 1 for each in asked)
    assert rig.scheduler.ensembles.held_bytes == 0


def test_ensembles_of_ensembles() -> None:
    """Two levels, beside a model that waits for the inner one."""
    rig = EnsembleRig(budget_bytes=3 * PAGE)
    rig.add(rig.model("a"), rig.model("b"), rig.model("two", 2))
    rig.ensemble(CHAIN, name="inner")
    text = ensemble_text(
        ["in"],
        ["out"],
        [
            step_text("a", {"x0": "in"}, {"y0": "s"}),
            step_text("inner", {"in": "s"}, {"out": "t"}),
            step_text("two", {"x0": "t", "x1": "s"}, {"y0": "out"}),
        ],
    )
    rig.ensemble(text)
    asked = [rig.submit("e", numbers(seed=seed)) for seed in range(6)]
    rig.run()
    for each in asked:
        s = mixed(each.inputs, 1)
        assert np.array_equal(answer(each)[0], mixed([after_chain(s), s], 1))
    assert rig.metrics.model("inner", "1").snapshot().success.count == 6
    gone = rig.submit("e", numbers())
    until_in_flight(rig, {"b": 1})
    rig.link.cancel(gone.request)
    rig.run()
    rig.close()


def test_rows_come_and_go_between_models_with_and_without_batches() -> None:
    """A row more, or a row of one less; what cannot be is refused with the step's name."""
    rig = EnsembleRig()
    rig.add(rig.model("a"), rig.model("whole", max_batch_size=0))
    text = ensemble_text(
        ["in"],
        ["out"],
        [
            step_text("a", {"x0": "in"}, {"y0": "t"}),
            step_text("whole", {"x0": "t"}, {"y0": "u"}),
            step_text("a", {"x0": "u"}, {"y0": "out"}),
        ],
    )
    rig.ensemble(text)
    x = numbers(3)
    asked = rig.submit("e", x)
    rig.run()
    assert np.array_equal(answer(asked)[0], mixed([after_chain(x)], 1))
    rig.close()


def test_more_rows_than_a_step_takes() -> None:
    """Without a batch dimension of its own an ensemble can hand on more than a model takes."""
    rig = EnsembleRig()
    rig.add(rig.model("a", max_batch_size=4))
    text = ensemble_text(
        ["in"], ["out"], [step_text("a", {"x0": "in"}, {"y0": "out"})], max_batch_size=0
    )
    rig.ensemble(text)
    asked = rig.submit("e", numbers(5))
    assert isinstance(error(asked), RequestError)
    assert "step 0 (model 'a'): got 5 rows" in str(error(asked))
    rig.close()


def test_ordered_replies_of_a_step() -> None:
    """A model that answers in order holds blocks back; ensembles wait with it, and lose none."""
    rig = EnsembleRig(budget_bytes=6 * PAGE)
    ordered = BatchingSpec(max_rows=1, preserve_ordering=True)
    rig.add(rig.model("a", num_slots=2, batching=ordered), rig.model("b"))
    rig.ensemble(CHAIN)
    asked = [rig.submit("e", numbers(seed=seed)) for seed in range(8)]
    rig.step()
    rig.link.cancel(asked[0].request)
    rig.run()
    for each in asked[1:]:
        assert np.array_equal(answer(each)[0], after_chain(*each.inputs))
    rig.close()


def test_an_ensemble_has_no_slot_to_pin() -> None:
    """It says so."""
    rig = chain_rig()
    with pytest.raises(NoSlotError, match="e is an ensemble"):
        rig.link.pin(rig.catalog.find("e", "").line)
    rig.close()


def test_priorities_reach_the_models_that_know_them() -> None:
    """A level that a model does not have is its default."""
    rig = EnsembleRig()
    levels = BatchingSpec(max_rows=1, num_priorities=3, default_priority=2)
    rig.add(rig.model("a", batching=levels), rig.model("b"))
    rig.ensemble(CHAIN)
    asked = [rig.submit("e", numbers(seed=seed), priority=3) for seed in range(6)]
    urgent = rig.submit("e", numbers(), priority=1)
    ended: list[Asked] = []
    for _ in range(200):
        rig.step()
        ended += [each for each in rig.asked if each.num_ends and each not in ended]
        rig.device.step()
    assert urgent in ended[:4]
    assert len(ended) == len(asked) + 1
    rig.run()
    rig.close()


def test_the_core_is_not_idle_while_word_of_a_step_waits() -> None:
    """What ends while others are led on is left for the next step, and a drain waits for it."""
    rig = chain_rig()
    rig.submit("e", numbers())
    until_in_flight(rig, {"a": 1})
    ensembles = rig.scheduler.ensembles
    while not ensembles.news:
        rig.device.step()
        for lane in rig.scheduler.poller.poll_once(rig.clock()):
            rig.scheduler._endings.take_out(lane)
        rig.scheduler._endings.flush()
    assert not rig.scheduler.is_idle
    assert rig.step()
    rig.run()
    assert np.array_equal(answer(rig.asked[0])[0], after_chain(*rig.asked[0].inputs))
    rig.close()
