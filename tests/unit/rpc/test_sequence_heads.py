"""Heads that differ in their sequence are checked once, and answered as if each had been."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.catalog import ModelCatalog
from headrace.errors import HeadraceError
from headrace.model import ServedModel
from headrace.rpc import sequence_heads
from headrace.rpc.prepare import Limits, Prepared, Preparer
from headrace.scheduling.request import Request
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import RequestParts, split_request
from helpers.served import served

CONFIG = """max_batch_size: 4 sequence_batching {
  control_input { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  state { input_name: "had" output_name: "has" data_type: TYPE_FP32 dims: [2] } }"""
MODELS = (
    served(
        *("x FP32[?,1] had FP32[?,2] id UINT64[?,1]", "y FP32[?,1] has FP32[?,2]", CONFIG),
        name="stateful",
        shapes_of=lambda shapes: (shapes[0], shapes[1]),
    ),
    served("x FP32[?,1]", "y FP32[?,1]", "max_batch_size: 4", name="plain"),
)
FIELDS = {bool: "bool_param", int: "int64_param", str: "string_param"}
TEXT = "longer than is taken " * 7


class Counting(ModelCatalog):
    """A catalog that counts the heads which were checked in full: each asks it."""

    def __init__(self) -> None:
        super().__init__()
        self.num_asked = 0
        for model in MODELS:
            self.add(model)

    def find(self, name: str, version: str) -> ServedModel:
        """Count and find."""
        self.num_asked += 1
        return super().find(name, version)


def parts_of(model: str, parameters: dict[str, Any], rows: int = 1) -> RequestParts:
    """A request with these parameters."""
    request = pb.ModelInferRequest(model_name=model, raw_input_contents=[bytes(4 * rows)])
    request.inputs.add(name="x", datatype="FP32", shape=[rows, 1])
    for name, value in parameters.items():
        setattr(request.parameters[name], FIELDS[type(value)], value)
    return split_request(request.SerializeToString())


def part_told(prepared: Prepared, tensors: Any) -> tuple[Any, ...]:
    """What the request that is made of a head goes on with."""
    assert prepared.layout is not None
    request = Request(
        *(prepared.served.line, prepared.layout, tensors),
        rows=prepared.rows,
        deadline=None,
        received_at=0.0,
        parsed_at=0.0,
        on_end=lambda *_: None,
    )
    prepared.submit(request, 0.0)
    return prepared.served.spec.name, request.part, [bytes(each) for each in request.tensors]


def answer(preparer: Preparer, parts: RequestParts) -> Any:
    """What becomes of a request: its part and tensors, or its error."""
    try:
        return part_told(*preparer.prepare(parts.head, parts.raw))
    except HeadraceError as error:
        return type(error), str(error)


def preparer(catalog: ModelCatalog) -> Preparer:
    """One that hands requests on to nobody."""
    return Preparer(catalog, Limits(), lambda *_: lambda *_: None)


@pytest.mark.parametrize("model", ["stateful", "plain"])
def test_many_sequences_are_checked_once(model: str) -> None:
    """The first of them is; so is what differs in more."""
    catalog = Counting()
    kept = preparer(catalog)
    for sequence_id in range(1, 50):
        for more in ({"sequence_start": True}, {}, {"sequence_end": True}):
            parts = parts_of(model, {"sequence_id": sequence_id, **more})
            told = answer(kept, parts)
            assert told == answer(preparer(Counting()), parts)
            assert kept.prepare(parts.head, parts.raw)[0] is kept.prepare(*parts[::2])[0]
    assert catalog.num_asked == 1
    answer(kept, parts_of(model, {"sequence_id": 1, "priority": 1}))
    assert catalog.num_asked == 2


parameters = st.fixed_dictionaries(
    {},
    optional={
        "sequence_id": st.sampled_from([0, 1, 2, -1, "", "seven", TEXT, True]),
        "sequence_start": st.sampled_from([True, False, 1]),
        "sequence_end": st.sampled_from([True, False, "true"]),
        "timeout": st.sampled_from([5, -5]),
        "sequence_ids": st.just(1),
    },
)


@given(st.lists(st.tuples(st.sampled_from(["stateful", "plain"]), parameters, st.integers(1, 2))))
def test_every_answer_is_that_of_a_full_check(
    asked: list[tuple[str, dict[str, Any], int]],
) -> None:
    """Whatever was asked before: right, wrong, or of a model without state."""
    kept = preparer(Counting())
    for each in asked:
        parts = parts_of(*each)
        assert answer(kept, parts) == answer(preparer(Counting()), parts)


def test_what_is_served_may_change() -> None:
    """Then everything is checked anew."""
    catalog = Counting()
    kept = preparer(catalog)
    for sequence_id in (1, 2):
        answer(kept, parts_of("plain", {"sequence_id": sequence_id}))
    catalog.serve("plain", [])
    assert "not found" in str(answer(kept, parts_of("plain", {"sequence_id": 3})))
    assert catalog.num_asked == 2


def test_the_number_of_heads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes."""
    monkeypatch.setattr(sequence_heads, "MAX_PLAIN", 2)
    catalog = Counting()
    kept = preparer(catalog)
    ids = count(1)
    for priority in (1, 2, 3, 1):
        for _ in range(2):
            answer(kept, parts_of("plain", {"sequence_id": next(ids), "priority": priority}))
    assert catalog.num_asked == 4


def test_a_second_key_makes_it_another_parameter() -> None:
    """The last one counts, so nothing may be taken for granted."""
    kept = preparer(Counting())
    answer(kept, parts_of("plain", {"sequence_id": 1}))
    parts = parts_of("plain", {"sequence_id": 2})
    entry = b"\x22\x16\x0a\x0bsequence_id\x0a\x03trt\x12\x02\x10\x02"
    assert len(entry) == 0x16 + 2
    at = parts.head.index(b"\x22")
    head = parts.head[:at] + entry
    rest = parts.head[at:]
    head += rest[2 + rest[1] :]
    changed = RequestParts(head, "", parts.raw)
    assert answer(kept, changed) == answer(preparer(Counting()), changed)


@pytest.mark.parametrize("num_raw", [0, 2])
def test_the_number_of_tensors_is_looked_at(num_raw: int) -> None:
    """The head says how many there should be, and not how many came."""
    kept = preparer(Counting())
    answer(kept, parts_of("plain", {"sequence_id": 1}))
    parts = parts_of("plain", {"sequence_id": 2})
    changed = RequestParts(parts.head, "", [*parts.raw, *parts.raw][:num_raw])
    assert answer(kept, changed) == answer(preparer(Counting()), changed)
