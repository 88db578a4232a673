"""ModelInfer between transport and link: every call is answered, once, and counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import nan

import grpc
import pytest

from headrace.errors import (
    AbandonedError,
    DeviceError,
    EngineError,
    ExpiredError,
    HeadraceError,
    OverloadedError,
    RequestError,
    RetiredError,
    UnavailableError,
)
from headrace.model import ServedModel
from headrace.rpc.infer import InferService, reply_by
from headrace.rpc.pins import Pins
from headrace.rpc.prepare import Limits
from headrace.rpc.status import Status
from headrace.rpc.wishes import Metadata
from headrace.scheduling.request import Request
from headrace.slots.batch import Output, Timing
from headrace.slots.state import SlotState
from headrace_proto.v1 import inference_pb2 as pb
from helpers.served import catalog_of, served

Code = grpc.StatusCode
RECEIVED_AT = 10.0


@dataclass
class Recorder:
    """A call that keeps how it was answered."""

    replies: list[bytes] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    breaks: bool = False
    sent: tuple[tuple[str, str | bytes], ...] = ()

    def metadata(self) -> Metadata:
        return self.sent

    def respond(self, reply: bytes) -> None:
        if self.breaks:
            raise TypeError("secret of the transport")
        self.replies.append(reply)

    def fail(self, status: Status) -> None:
        self.statuses.append(status)


class HandLink:
    """A link whose requests the test ends by hand."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.refusal: Exception | None = None

    def submit(self, request: Request, now: float) -> None:
        if self.refusal is not None:
            raise self.refusal
        request.staged_at = now
        self.requests.append(request)

    def answer(self, request: Request) -> None:
        request.end((), None)

    def cancel(self, request: Request) -> None:
        raise AssertionError("the transport's to call")

    def step(self, now: float) -> bool:
        return False

    def next_look(self, now: float) -> float | None:
        return None

    is_idle = is_at_rest = True
    is_polling = False
    due_at = 0.0

    def refuse_new(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Rig:
    """The service with one model, `m`: x FP32 [-1, 2] → y."""

    def __init__(self) -> None:
        self.model: ServedModel = served("x FP32[?,2]", "y FP32[?,2]", "max_batch_size: 4")
        self.link = HandLink()
        self.now = RECEIVED_AT + 1
        self.service = InferService(
            catalog_of(self.model),
            self.link,
            Limits(max_response_bytes=1000),
            clock=lambda: self.now,
            max_request_bytes=200,
            overload=Code.RESOURCE_EXHAUSTED,
        )

    def ask(
        self, message: bytes | None = None, *, breaks: bool = False, deadline: float | None = None
    ) -> Recorder:
        call = Recorder(breaks=breaks)
        request = self.service.accept(
            right() if message is None else message,
            call,
            received_at=RECEIVED_AT,
            deadline=deadline,
        )
        assert request is (self.link.requests[-1] if not call.statuses else None)
        return call

    def end(self, outputs: list[Output] | None = None, error: Exception | None = None) -> None:
        request = self.link.requests.pop()
        request.timing = Timing(RECEIVED_AT + 2, nan, 0.5, nan, RECEIVED_AT + 3)
        self.now = RECEIVED_AT + 4
        request.end(outputs, error)

    @property
    def counts(self) -> tuple[int, dict[str, int]]:
        """Successes, and failures by reason."""
        reading = self.model.line.metrics.read()
        failures = {reason: n for reason, n in reading.failures.items() if n}
        return reading.statistics.success.count, failures  # type: ignore[return-value]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def right(request_id: str = "7", rows: int = 1) -> bytes:
    message = pb.ModelInferRequest(
        model_name="m", id=request_id, raw_input_contents=[bytes(8 * rows)]
    )
    message.inputs.add(name="x", datatype="FP32", shape=[rows, 2])
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("left_s", "kept_s"),
    [(10.0, 9.997), (0.1, 0.097), (0.05, 0.047), (0.01, 0.0094), (0.0, 0.0)],
)
def test_a_reply_leaves_before_the_deadline_is_over(left_s: float, kept_s: float) -> None:
    """Some milliseconds before; of a short deadline a small share."""
    assert reply_by(RECEIVED_AT + left_s, RECEIVED_AT) == pytest.approx(RECEIVED_AT + kept_s)
    assert reply_by(None, RECEIVED_AT) is None


def test_a_request_is_handed_over_with_its_times_and_answered(rig: Rig) -> None:
    """The deadline goes with it, the id comes back, and each stage is measured where it says."""
    call = rig.ask(right("größe", rows=3), deadline=99.0)
    (request,) = rig.link.requests
    assert request.deadline == reply_by(99.0, RECEIVED_AT)
    assert (request.rows, request.received_at) == (3, RECEIVED_AT)
    assert [bytes(tensor) for tensor in request.tensors] == [bytes(24)]
    assert (call.replies, call.statuses) == ([], [])
    rig.end([((3, 2), b"y" * 24)])
    (reply,) = call.replies
    answer = pb.ModelInferResponse.FromString(reply)
    assert (answer.id, list(answer.raw_output_contents)) == ("größe", [b"y" * 24])
    assert rig.counts == (1, {})
    statistics = rig.model.line.metrics.snapshot()
    assert (statistics.inference_count, statistics.execution_count) == (3, 1)
    seconds = {
        "total": statistics.success.ns / 1e9,  # received 10 … answered 14
        "queue": statistics.queue.ns / 1e9,  # staged 11 … started 12
        "infer": statistics.compute_infer.ns / 1e9,
        "output": statistics.compute_output.ns / 1e9,  # done 13 … answered 14
    }
    assert seconds == {"total": 4.0, "queue": 1.0, "infer": 0.5, "output": 1.0}


def test_a_reply_in_a_stream_is_wrapped(rig: Rig) -> None:
    """As a ModelStreamInferResponse; an error is the call's own to wrap."""
    call = Recorder()
    stream = Pins(rig.link, is_wanted=False)  # type: ignore[arg-type]
    rig.service.accept(right("7"), call, received_at=0.0, deadline=None, stream=stream)
    rig.end([((1, 2), b"y" * 8)])
    (reply,) = call.replies
    answer = pb.ModelStreamInferResponse.FromString(reply).infer_response
    assert (answer.id, list(answer.raw_output_contents)) == ("7", [b"y" * 8])


def test_wishes_reach_the_request_and_the_parameter_goes_before_the_metadata(rig: Rig) -> None:
    """Read once for each head, the metadata of each call."""
    message = pb.ModelInferRequest.FromString(right())
    cameras = Recorder(sent=(("headrace-stream-id", "cam"),))
    for call in (Recorder(), cameras):
        rig.service.accept(message.SerializeToString(), call, received_at=0.0, deadline=None)
    message.parameters["stream_id"].int64_param = 7
    message.parameters["timeout"].int64_param = 2_000_000
    rig.service.accept(message.SerializeToString(), cameras, received_at=0.0, deadline=None)
    came = [(request.source, request.timeout_s) for request in rig.link.requests]
    assert came == [(None, 0.0), ("cam", 0.0), ("7", 2.0)]


def test_a_source_that_cannot_be_one_ends_the_call(rig: Rig) -> None:
    """Before anything is handed over."""
    call = Recorder(sent=(("headrace-stream-id", "x" * 200),))
    assert rig.service.accept(right(), call, received_at=0.0, deadline=None) is None
    assert [status.code for status in call.statuses] == [Code.INVALID_ARGUMENT]
    assert rig.link.requests == []


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (b"\xff", Code.INVALID_ARGUMENT, "not a serialized inference.ModelInferRequest"),
        (b"\x0a\x05m", Code.INVALID_ARGUMENT, "not a"),
        (b"", Code.NOT_FOUND, "unknown model"),
        (right() + bytes(200), Code.RESOURCE_EXHAUSTED, "--grpc-max-request-bytes"),
        (right(rows=9), Code.INVALID_ARGUMENT, "batch-size"),
    ],
)
def test_a_wrong_message_is_answered_at_once(
    rig: Rig, message: bytes, code: grpc.StatusCode, text: str
) -> None:
    """It never reaches the link."""
    call = rig.ask(message)
    (status,) = call.statuses
    assert (status.code, text in status.text) == (code, True), status.text
    assert rig.link.requests == []


def test_overload_is_answered_as_the_operator_chose(rig: Rig) -> None:
    """With the wish not to be asked again."""
    rig.link.refusal = OverloadedError("Exceeds maximum queue size")
    (status,) = rig.ask().statuses
    assert status == Status(Code.RESOURCE_EXHAUSTED, "Exceeds maximum queue size", no_retry=True)


def test_a_bug_in_the_core_is_answered_without_details(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has them."""
    rig.link.refusal = KeyError("secret")
    (status,) = rig.ask().statuses
    assert (status.code, "secret" in status.text) == (Code.INTERNAL, False)
    assert "KeyError: 'secret'" in caplog.text


@pytest.mark.parametrize(
    ("error", "code", "counted"),
    [
        (EngineError("ONNX Runtime failed: no"), Code.INTERNAL, {"BACKEND": 1}),
        (DeviceError("copy", code=700, name="cudaError"), Code.INTERNAL, {"BACKEND": 1}),
        (RequestError("not UTF-8"), Code.INVALID_ARGUMENT, {"OTHER": 1}),
        # These the core has counted as dropped.
        (ExpiredError("late"), Code.DEADLINE_EXCEEDED, {}),
        (AbandonedError("gone"), Code.CANCELLED, {}),
        (UnavailableError("shutting down"), Code.UNAVAILABLE, {}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, HeadraceError) else None,
)
def test_an_error_ends_the_call_and_is_counted_once(
    rig: Rig, error: HeadraceError, code: grpc.StatusCode, counted: dict[str, int]
) -> None:
    """By the one who knows of it."""
    call = rig.ask()
    rig.end(error=error)
    assert [(status.code, status.text) for status in call.statuses] == [(code, str(error))]
    assert call.replies == []
    assert rig.counts == (0, counted)


def test_a_reply_over_the_limit_is_the_caller_s_to_mend(rig: Rig) -> None:
    """It is refused before it is written, and counted as failed."""
    call = rig.ask()
    rig.end([((1, 2), bytes(2000))])
    (status,) = call.statuses
    assert (status.code, "limit is 1000" in status.text) == (Code.INVALID_ARGUMENT, True)
    assert rig.counts == (0, {"OTHER": 1})


@pytest.mark.parametrize(
    "error", [DeviceError("it hangs"), UnavailableError("m is not at ready state")], ids=repr
)
def test_when_the_newest_version_fails_an_older_one_takes_over(error: HeadraceError) -> None:
    """Although the same head was answered by the newest before."""
    versions = [served("x FP32[?,2]", "y FP32[?,2]", version=number) for number in (1, 2)]
    link = HandLink()
    service = InferService(
        catalog_of(*versions), link, Limits(), clock=lambda: 0.0, max_request_bytes=200
    )

    def answered_by() -> int:
        service.accept(right(), Recorder(), received_at=0.0, deadline=None)
        return 1 + [model.line for model in versions].index(link.requests[-1].line)

    assert [answered_by(), answered_by()] == [2, 2]
    for slot in versions[1].line.pool.slots:
        slot.move_to(SlotState.FAULTED)
    link.requests.pop().end(None, error)
    assert answered_by() == 1


def test_a_version_that_was_replaced_on_the_way_in_is_looked_up_again() -> None:
    """The caller sees nothing of it: the request is handed to the version that serves now."""
    old, new = (served("x FP32[?,2]", "y FP32[?,2]", version=number) for number in (1, 2))
    catalog = catalog_of(old)

    class Swapping(HandLink):
        def submit(self, request: Request, now: float) -> None:
            if request.line is old.line:
                catalog.add(new)  # between the look-up and the hand-over
                raise RetiredError("gone")
            super().submit(request, now)

    link, call = Swapping(), Recorder()
    service = InferService(catalog, link, Limits(), clock=lambda: 0.0, max_request_bytes=200)
    request = service.accept(right(), call, received_at=0.0, deadline=None)
    assert request is not None
    assert (request.line, call.statuses) == (new.line, [])


def test_it_is_not_looked_up_for_ever(rig: Rig) -> None:
    """Were a retired version still in the catalog, the caller would be told."""
    rig.link.refusal = RetiredError("this version of m has been unloaded")
    (status,) = rig.ask().statuses
    assert status.code is Code.UNAVAILABLE
    assert rig.counts == (0, {})


def too_few(rig: Rig) -> Recorder:
    call = rig.ask()
    rig.end([])
    return call


def will_not_send(rig: Rig) -> Recorder:
    call = rig.ask(breaks=True)
    rig.end([((1, 2), bytes(8))])
    return call


@pytest.mark.parametrize("bug", [too_few, will_not_send])
def test_a_bug_on_the_way_out_still_answers_the_call(
    rig: Rig, caplog: pytest.LogCaptureFixture, bug: Callable[[Rig], Recorder]
) -> None:
    """A reply that cannot be written or sent must not leave the caller waiting for ever."""
    call = bug(rig)
    (status,) = call.statuses
    assert (status.code, "secret" in status.text) == (Code.INTERNAL, False)
    assert "because of a bug" in caplog.text
    assert rig.counts == (0, {"OTHER": 1})
