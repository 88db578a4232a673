"""Requests to a model with a response cache: who is answered from it, and what is counted."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from headrace.errors import EngineError, HeadraceError, RetiredError, UnavailableError
from headrace.response_cache.store import ResponseCache
from headrace.rpc.infer import InferService
from headrace.rpc.prepare import Limits
from headrace.rpc.status import Status
from headrace.rpc.wishes import Metadata
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request
from headrace.slots.batch import Output, Timing
from headrace_proto.v1 import inference_pb2 as pb
from helpers.served import catalog_of, served

Code = grpc.StatusCode
ONE, TWO = bytes(8), bytes([1] * 8)


class Call:
    """A call that keeps how it was answered."""

    def __init__(self) -> None:
        self.reply: bytes | None = None
        self.status: Status | None = None

    def metadata(self) -> Metadata:
        return ()

    def respond(self, reply: bytes) -> None:
        self.reply = reply

    def fail(self, status: Status) -> None:
        self.status = status


class HandLink:
    """A link whose requests the test ends by hand."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.refusal: HeadraceError | None = None

    def submit(self, request: Request, now: float) -> None:
        request.staged_at = now
        self.requests.append(request)

    def answer(self, request: Request) -> None:
        if self.refusal is not None:
            raise self.refusal
        request.end((), None)


class Rig:
    """`m`: x FP32 [-1,2], z FP32 [-1,2] → y FP32 [-1,4], w INT32 [-1,1], with a cache."""

    def __init__(self, max_bytes: int = 1 << 16) -> None:
        self.store = ResponseCache(max_bytes)
        self.model = self.load()
        self.catalog = catalog_of(self.model)
        self.link = HandLink()
        self.now = 10.0
        self.service = InferService(
            self.catalog,
            self.link,  # type: ignore[arg-type]  # what the service asks of it alone
            Limits(max_response_bytes=1000),
            clock=self.clock,
            max_request_bytes=4000,
        )

    def load(self, version: int = 1) -> Any:
        model = served(
            "x FP32[?,2] z FP32[?,2]",
            "y FP32[?,4] w INT32[?,1]",
            "max_batch_size: 4 response_cache { enable: true }",
            version=version,
        )
        model.cache = self.store.open()
        return model

    def clock(self) -> float:
        """Each look takes a second."""
        self.now += 1.0
        return self.now

    def ask(self, message: pb.ModelInferRequest | None = None, *, in_stream: bool = False) -> Call:
        call = Call()
        self.service.accept(
            (message or asks()).SerializeToString(),
            call,
            received_at=self.now,
            deadline=None,
            stream=Everybody() if in_stream else None,
        )
        return call

    def end(self, error: HeadraceError | None = None, fill: int = 7) -> None:
        """End the one request that runs."""
        (request,) = self.link.requests
        self.link.requests.clear()
        request.timing = Timing(self.now, 0.0, 0.0, 0.0, self.now)
        outputs: list[Output] = [((1, 4), memoryview(bytes([fill] * 16))), ((1, 1), bytes(4))]
        request.end(None if error else outputs, error)

    def runs(self, message: pb.ModelInferRequest | None = None) -> bool:
        """Whether a request runs, which is ended."""
        self.ask(message)
        is_running = bool(self.link.requests)
        if is_running:
            self.end()
        return is_running


class Everybody:
    """A stream without a slot of its own."""

    def line_for(self, line: Line) -> Line:
        return line


def asks(
    x: bytes = ONE,
    z: bytes = ONE,
    *,
    request_id: str = "",
    outputs: tuple[str, ...] = (),
    classes: int = 0,
    order: str = "xz",
    rows: int = 1,
) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="m", id=request_id)
    for name in order:
        message.inputs.add(name=name, datatype="FP32", shape=[rows, 2])
        message.raw_input_contents.append({"x": x, "z": z}[name])
    for name in outputs:
        output = message.outputs.add(name=name)
        if classes and name == "y":
            output.parameters["classification"].int64_param = classes
    return message


def reply_of(call: Call) -> pb.ModelInferResponse:
    assert call.reply is not None, call.status
    return pb.ModelInferResponse.FromString(call.reply)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_second_who_asks_is_answered_at_once(rig: Rig) -> None:
    """With the same message, and without a copy, where neither has an id."""
    first = rig.ask()
    assert first.reply is None
    rig.end()
    second = rig.ask()
    assert rig.link.requests == []
    assert second.reply is first.reply


def test_ids_are_those_of_who_asks(rig: Rig) -> None:
    """In both directions, whatever their length."""
    asked = ["first", "", "a" * 300, "first"]
    calls = []
    for request_id in asked:
        calls.append(rig.ask(asks(request_id=request_id)))
        if rig.link.requests:
            rig.end()
    replies = [reply_of(call) for call in calls]
    assert [reply.id for reply in replies] == asked
    for reply in replies:
        reply.id = ""
        assert reply == replies[0]
    assert rig.model.line.metrics.snapshot().cache_hit.count == 3


@pytest.mark.parametrize(
    "other",
    [
        asks(TWO),
        asks(z=TWO),
        asks(ONE, TWO),
        asks(bytes(16), bytes(16), rows=2),
        asks(outputs=("y",)),
        asks(outputs=("w", "y")),
        asks(outputs=("y", "w"), classes=1),
        asks(outputs=("y", "w"), classes=2),
    ],
    ids=["x", "z", "z alone", "rows", "one output", "other order", "a class", "two classes"],
)
def test_what_differs_runs(rig: Rig, other: pb.ModelInferRequest) -> None:
    """Bytes, shapes, outputs, their order, classes: all that decides the answer."""
    assert rig.runs(asks())
    assert rig.runs(asks(outputs=("y", "w"), classes=3))
    assert rig.runs(other)
    assert not rig.runs(other)


def test_swapped_tensors_are_not_the_same(rig: Rig) -> None:
    """Two inputs with each other's bytes."""
    assert rig.runs(asks(ONE, TWO))
    assert rig.runs(asks(TWO, ONE))


def test_what_does_not_change_the_answer_does_not_count(rig: Rig) -> None:
    """The order of the inputs, all outputs by name, wishes for the queue."""
    assert rig.runs(asks(ONE, TWO))
    assert not rig.runs(asks(ONE, TWO, order="zx"))
    assert not rig.runs(asks(ONE, TWO, outputs=("y", "w")))
    wishing = asks(ONE, TWO)
    wishing.parameters["priority"].uint64_param = 1
    wishing.parameters["timeout"].int64_param = 10
    assert not rig.runs(wishing)


def test_typed_contents_and_raw_bytes_are_the_same(rig: Rig) -> None:
    """However the tensor was sent."""
    assert rig.runs(asks())
    typed = asks()
    del typed.raw_input_contents[:]
    for tensor in typed.inputs:
        tensor.contents.fp32_contents.extend([0.0, 0.0])
    assert not rig.runs(typed)


def test_streams_and_single_calls_share_replies(rig: Rig) -> None:
    """Each gets its own kind of message."""
    first = rig.ask(asks(request_id="one"), in_stream=True)
    rig.end()
    alone, streamed = rig.ask(), rig.ask(asks(request_id="two"), in_stream=True)
    assert rig.link.requests == []
    single = reply_of(alone)
    for call, request_id in ((first, "one"), (streamed, "two")):
        assert call.reply is not None
        message = pb.ModelStreamInferResponse.FromString(call.reply)
        inner = message.infer_response
        assert inner.parameters.pop("triton_final_response").bool_param
        assert (inner.id, message.error_message) == (request_id, "")
        inner.id = ""
        assert inner == single


def test_errors_are_not_kept(rig: Rig) -> None:
    """Who asks again has the model run again."""
    call = rig.ask()
    rig.end(EngineError("no"))
    assert call.status is not None
    assert rig.runs()
    assert not rig.runs()


def test_equal_requests_at_the_same_time_each_run(rig: Rig) -> None:
    """The first reply is kept; nobody waits for another's."""
    calls = [rig.ask(), rig.ask()]
    requests, rig.link.requests = rig.link.requests, []
    for fill, request in enumerate(requests):
        rig.link.requests = [request]
        rig.end(fill=fill)
    assert [reply_of(call).raw_output_contents[0][0] for call in calls] == [0, 1]
    assert reply_of(rig.ask()).raw_output_contents[0][0] == 0
    assert len(rig.store) == 1


def test_another_version_never_answers_from_its_cache(rig: Rig) -> None:
    """Nor does the same version that was loaded anew; the former's replies are gone."""
    assert rig.runs()
    rig.catalog.serve("m", [again := rig.load()])
    assert rig.runs()
    assert len(rig.store) == 2
    rig.model.close()
    assert len(rig.store) == 1
    assert not rig.runs()
    rig.catalog.serve("m", [again, rig.load(version=2)])
    assert rig.runs()


def test_a_reply_for_a_model_that_was_closed_is_not_kept(rig: Rig) -> None:
    """It would stay until others push it out, and nobody could ask for it."""
    call = rig.ask()
    rig.model.close()
    rig.end()
    assert reply_of(call).model_name == "m"
    assert len(rig.store) == 0


@pytest.mark.parametrize(
    "error", [UnavailableError("shutting down"), RetiredError("gone")], ids=repr
)
def test_what_would_not_be_served_is_not_answered(rig: Rig, error: HeadraceError) -> None:
    """The cache is no way around a server that takes nothing more."""
    assert rig.runs()
    rig.link.refusal = error
    call = rig.ask()
    assert (call.reply, call.status and call.status.code) == (None, Code.UNAVAILABLE)
    assert rig.model.line.metrics.snapshot().cache_hit.count == 0


def test_an_id_that_makes_the_reply_too_large_is_refused(rig: Rig) -> None:
    """As it would be without a cache, on both ways; the next is answered."""
    assert rig.runs()
    for in_stream in (False, True):
        call = rig.ask(asks(request_id="a" * 950), in_stream=in_stream)
        assert (call.status and call.status.code) == Code.INVALID_ARGUMENT
        assert not rig.runs()


def test_what_is_too_large_for_the_cache_is_answered_all_the_same() -> None:
    """Every time by the model."""
    rig = Rig(max_bytes=100)
    assert [rig.runs() for _ in range(3)] == [True] * 3
    assert rig.model.line.metrics.snapshot().cache_miss.count == 3


def test_counts(rig: Rig) -> None:
    """Hits are answers and no inferences; what the cache took is in figures of its own."""
    assert rig.runs()
    for _ in range(3):
        assert not rig.runs()
    rig.ask(asks(TWO))
    rig.end(EngineError("no"))
    counted = rig.model.line.metrics.snapshot()
    assert (counted.success.count, counted.inference_count, counted.execution_count) == (4, 1, 1)
    assert (counted.cache_hit.count, counted.cache_miss.count, counted.fail.count) == (3, 1, 1)
    for run in (counted.compute_input, counted.compute_infer, counted.compute_output):
        assert run.count == 1
    # The clock moves on by a second a look: found, written; and for a miss: kept before and after.
    assert (counted.cache_hit.ns, counted.cache_miss.ns) == (3 * 2 * 10**9, 2 * 10**9)
    assert counted.queue.ns == 0
