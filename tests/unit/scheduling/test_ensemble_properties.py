"""Whatever the steps of an ensemble are, and whatever goes wrong: one end each, nothing kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines.batching_spec import BatchingSpec
from headrace.errors import EngineError, HeadraceError
from headrace.scheduling.request import RequestState
from helpers.ensemble_rig import Asked, Bytes, EnsembleRig, ensemble_text, mixed, step_text

PAGE = 4096
MAX_STEPS = 6


@dataclass(frozen=True)
class Graph:
    """Steps as they can be run: each reads what is there, and writes what is new."""

    inputs: tuple[str, ...]
    steps: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]  # what it reads, what it writes

    @property
    def outputs(self) -> list[str]:
        """What nobody reads; and the first step's first, which others may read as well."""
        read = {name for reads, _ in self.steps for name in reads}
        written = [name for _, writes in self.steps for name in writes]
        return [name for name in written if name not in read or name == "t0_0"]

    def expected(self, inputs: Sequence[Bytes]) -> list[Bytes]:
        """What the outputs are, by numpy."""
        there = dict(zip(self.inputs, inputs, strict=True))
        for reads, writes in self.steps:
            for number, name in enumerate(writes, start=1):
                there[name] = mixed([there[each] for each in reads], number)
        return [there[name] for name in self.outputs]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any acyclic graph; its first step reads every input, so that each is read."""
    inputs = tuple(f"in{index}" for index in range(draw(st.integers(1, 2))))
    there, steps = list(inputs), []
    for index in range(draw(st.integers(1, MAX_STEPS))):
        reads = inputs
        if index:
            some = st.lists(st.sampled_from(there), min_size=1, max_size=3)
            reads = tuple(draw(some))  # one tensor may be two inputs
        writes = tuple(f"t{index}_{number}" for number in range(draw(st.integers(1, 2))))
        steps.append((reads, writes))
        there += writes
    return Graph(inputs, tuple(steps))


def text_of(graph: Graph, order: Sequence[int]) -> str:
    """The configuration, its steps in any order; models are called by what they take and give."""
    steps = [
        step_text(
            f"m{len(reads)}{len(writes)}",
            {f"x{index}": name for index, name in enumerate(reads)},
            {f"y{index}": name for index, name in enumerate(writes)},
        )
        for reads, writes in (graph.steps[place] for place in order)
    ]
    return ensemble_text(graph.inputs, graph.outputs, steps)


@dataclass(frozen=True)
class Fate:
    """What goes wrong, and when: counted in events of the device."""

    failing: tuple[int, ...]
    cancelled: dict[int, int]  # event → which request
    closes_at: int


fates = st.builds(
    Fate,
    failing=st.lists(st.integers(0, 12), max_size=2).map(tuple),
    cancelled=st.dictionaries(st.integers(0, 40), st.integers(0, 5), max_size=4),
    closes_at=st.sampled_from([10_000, 10_000, 10_000, 10_000, 5, 17]),
)
batchings = st.sampled_from(
    [
        None,
        BatchingSpec(max_rows=8),
        BatchingSpec(max_rows=8, max_delay_s=0.002),
        BatchingSpec(max_rows=4, preserve_ordering=True),
    ]
)


def open_rig(data: st.DataObject, graph: Graph) -> EnsembleRig:
    rig = EnsembleRig(
        budget_bytes=data.draw(st.sampled_from([PAGE, 2 * PAGE, 1 << 20]), "budget"),
        max_waiting_bytes=data.draw(st.sampled_from([PAGE, 1 << 20]), "waiting"),
        is_unified=data.draw(st.booleans(), "is_unified"),
    )
    for num_inputs, num_outputs in sorted({(len(r), len(w)) for r, w in graph.steps}):
        model = rig.model(
            *(f"m{num_inputs}{num_outputs}", num_inputs, num_outputs),
            num_slots=data.draw(st.integers(1, 2), "slots"),
            batching=data.draw(batchings, "batching"),
            max_queue_size=data.draw(st.sampled_from([2, 64]), "queue"),
        )
        rig.add(model)
    rig.ensemble(text_of(graph, data.draw(st.permutations(range(len(graph.steps))), "order")))
    return rig


def submit(rig: EnsembleRig, graph: Graph, seed: int, deadline_s: float | None) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 4))
    inputs = [rng.integers(0, 256, (rows, 16), np.uint8) for _ in graph.inputs]
    deadline = None if deadline_s is None else rig.clock() + deadline_s
    try:
        rig.submit("e", *inputs, deadline=deadline)
    except HeadraceError:
        return


def play(rig: EnsembleRig, fate: Fate) -> None:
    """Let the core and the device work until nothing is left to do."""
    for event in range(2000):
        while rig.step():
            pass
        who = fate.cancelled.get(event)
        if who is not None and who < len(rig.asked):
            asked = rig.asked[who]
            if asked.request.state is not RequestState.ENDED:
                rig.link.cancel(asked.request)
        if event == fate.closes_at:
            rig.link.close()
        if not rig.device.step():
            if rig.scheduler.is_idle:
                return
            rig.device.run_until(rig.clock() + 0.005)
    raise AssertionError("the core does not come to rest")


def hold(rig: EnsembleRig, graph: Graph, asked: Asked) -> None:
    """One end, and if it is an answer, the right one."""
    assert asked.num_ends == 1
    for outputs in asked.answers:
        for got, expected in zip(outputs, graph.expected(asked.inputs), strict=True):
            assert np.array_equal(got, expected), "an answer is wrong"
    for error in asked.errors:
        assert isinstance(error, HeadraceError), repr(error)
    assert rig.scheduler.ensembles.held_bytes == 0


@pytest.mark.timeout(120)
@given(graphs(), fates, st.data())
@settings(max_examples=60, deadline=None)
def test_every_request_ends_once_and_nothing_is_kept(
    graph: Graph, fate: Fate, data: st.DataObject
) -> None:
    """Random steps, failures, departures, deadlines, ends, in more or hardly any memory."""
    rig = open_rig(data, graph)
    for after in fate.failing:
        rig.device.fail_launch(EngineError("no"), after=after, is_refused=True)
    for seed in range(data.draw(st.integers(1, 6), "requests")):
        submit(rig, graph, seed, data.draw(st.sampled_from([None, None, 0.004]), "deadline_s"))
        if data.draw(st.booleans(), "steps"):
            rig.step()
            rig.device.step()
    play(rig, fate)
    for asked in rig.asked:
        hold(rig, graph, asked)
    rig.close()


@given(graphs(), st.data())
@settings(max_examples=20, deadline=None)
def test_without_misfortune_every_request_is_answered(graph: Graph, data: st.DataObject) -> None:
    """However little staging memory there is: steps never wait for each other's blocks."""
    rig = EnsembleRig(budget_bytes=data.draw(st.sampled_from([PAGE, 2 * PAGE, 3 * PAGE])))
    for num_inputs, num_outputs in sorted({(len(r), len(w)) for r, w in graph.steps}):
        rig.add(rig.model(f"m{num_inputs}{num_outputs}", num_inputs, num_outputs))
    rig.ensemble(text_of(graph, range(len(graph.steps))))
    for seed in range(8):
        submit(rig, graph, seed, None)
    assert len(rig.asked) == 8
    play(rig, Fate((), {}, 10_000))
    for asked in rig.asked:
        assert asked.answers
        hold(rig, graph, asked)
    rig.close()
