"""The requests of one stream: replies in order, bounds that hold, and books that balance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.rpc.status import Status
from headrace.rpc.stream import STRICT, HeldBytes, OrderedReplies, StreamBounds, StreamCall
from headrace.scheduling.request import Request
from headrace_proto.v1 import inference_pb2 as pb

Code = grpc.StatusCode
STAGED = 100


class Rig:
    """One stream, whose requests the test answers by hand."""

    def __init__(self, bounds: StreamBounds | None = None, metadata: Any = ()) -> None:
        self.num_told = 0
        self.held_by_all = HeldBytes()
        self.replies = OrderedReplies(
            bounds or StreamBounds(), self.held_by_all, self.tell, metadata
        )

    def tell(self) -> None:
        self.num_told += 1

    def ask(self, request_id: str = "", staged_bytes: int = STAGED) -> StreamCall:
        call = self.replies.add()
        self.replies.accepted(call, request(request_id, staged_bytes))
        return call

    def written(self) -> list[bytes]:
        """What can be written now, as if it were."""
        messages = []
        while (message := self.replies.next_reply()) is not None:
            assert isinstance(message, bytes)
            messages.append(message)
            self.replies.sent()
        return messages

    @property
    def held(self) -> tuple[int, int]:
        """Bytes, by this stream and by all."""
        return self.replies.held.total, self.held_by_all.total


def request(request_id: str, size_bytes: int) -> Request:
    """As much of a request as a stream looks at."""
    made: Any = SimpleNamespace(
        layout=SimpleNamespace(size_bytes=size_bytes), tag=(None, None, request_id)
    )
    wanted: Request = made
    return wanted


def read(message: bytes | Status | None) -> pb.ModelStreamInferResponse:
    assert isinstance(message, bytes)
    return pb.ModelStreamInferResponse.FromString(message)


@given(st.permutations(range(8)))
def test_replies_leave_in_the_order_of_requests(order: list[int]) -> None:
    """Whatever the order of the answers, and each as soon as those before it have come."""
    rig = Rig()
    calls = [rig.ask() for _ in order]
    written: list[bytes] = []
    answered: set[int] = set()
    for index in order:
        calls[index].respond(b"%d" % index)
        answered.add(index)
        written += rig.written()
        num_in_order = next(n for n in range(9) if n not in answered)
        assert written == [b"%d" % n for n in range(num_in_order)]
    assert rig.num_told == len(order)
    assert rig.held == (0, 0)


def test_an_error_is_a_message_in_its_place() -> None:
    """With the id of its request; those behind it are not touched."""
    rig = Rig()
    first, second = rig.ask("a"), rig.ask("b")
    second.respond(b"later")
    assert rig.replies.next_reply() is None
    first.fail(Status(Code.INVALID_ARGUMENT, "wrong shape"))
    error, reply = rig.written()
    assert read(error).error_message == "wrong shape"
    assert read(error).infer_response.id == "a"
    assert reply == b"later"


@pytest.mark.parametrize(
    ("message", "request_id"),
    [(pb.ModelInferRequest(id="größe").SerializeToString(), "größe"), (b"\xff", ""), (b"", "")],
)
def test_a_refused_request_is_named_where_it_can_be_read(message: bytes, request_id: str) -> None:
    """It never became a request, so the id is looked up in the message."""
    rig = Rig()
    call = rig.replies.add()
    call.fail(Status(Code.UNAVAILABLE, "full"))
    rig.replies.refused(call, message)
    (error,) = rig.written()
    assert read(error).infer_response.id == request_id


def test_where_the_client_asks_for_it_an_error_is_the_end() -> None:
    """In its turn: what was asked before is still answered."""
    rig = Rig(metadata=(("x-a", "true"), STRICT))
    first, second = rig.ask(), rig.ask()
    status = Status(Code.NOT_FOUND, "no")
    second.fail(status)
    assert rig.replies.next_reply() is None
    first.respond(b"1")
    assert rig.replies.next_reply() == b"1"
    rig.replies.sent()
    assert rig.replies.next_reply() is status


@pytest.mark.parametrize("value", ["false", "", "1"])
def test_only_the_word_of_triton_asks_for_it(value: str) -> None:
    """Anything else leaves errors in the messages."""
    rig = Rig(metadata=((STRICT[0], value),))
    rig.ask("7").fail(Status(Code.NOT_FOUND, "no"))
    (error,) = rig.written()
    assert read(error).error_message == "no"


def test_so_many_requests_and_no_more() -> None:
    """Until a reply has been written; that it is there is not enough."""
    rig = Rig(StreamBounds(max_requests=2))
    calls = [rig.ask() for _ in range(2)]
    assert rig.replies.is_full
    calls[1].respond(b"2")
    calls[0].respond(b"1")
    assert rig.replies.is_full
    rig.replies.sent()
    assert not rig.replies.is_full


def test_so_many_bytes_and_one_request_more() -> None:
    """Of tensors first, and of the reply once that is there."""
    rig = Rig(StreamBounds(max_bytes=150))
    seen = [rig.replies.is_full]
    call = rig.ask(staged_bytes=100)
    seen.append(rig.replies.is_full)
    rig.ask(staged_bytes=100)
    seen.append(rig.replies.is_full)
    call.respond(bytes(10))
    seen.append(rig.replies.is_full)
    assert (seen, rig.held) == ([False, False, True, False], (110, 110))


def test_a_large_one_is_served_all_the_same() -> None:
    """One request is always read, or the stream would stand still for ever."""
    rig = Rig(StreamBounds(max_bytes=10))
    rig.ask(staged_bytes=1000).respond(bytes(5000))
    assert (rig.replies.is_full, rig.held) == (True, (5000, 5000))
    rig.written()
    assert (rig.replies.is_full, rig.held) == (False, (0, 0))


def test_an_answer_that_comes_before_its_request_is_noted() -> None:
    """As happens when another thread is in the core: the books balance."""
    rig = Rig()
    call = rig.replies.add()
    call.respond(bytes(70))
    rig.replies.accepted(call, request("a", 100))
    rig.written()
    assert rig.held == (0, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["wait", "answer", "fail", "refuse", "late"]), st.integers(0, 500)
        )
    )
)
def test_a_client_that_leaves_leaves_nothing(requests: list[tuple[str, int]]) -> None:
    """What is not answered is cancelled, once; what another thread answers meanwhile counts."""
    rig = Rig()
    others = rig.held_by_all.by_stream = 7  # bytes of other streams
    late: dict[int, tuple[StreamCall, int]] = {}
    wanted = []
    for what, size in requests:
        call = rig.replies.add()
        if what == "refuse":
            call.fail(Status(Code.UNAVAILABLE, "full"))
            continue
        made = request("", 100)
        rig.replies.accepted(call, made)
        if what == "answer":
            call.respond(bytes(size))
        elif what == "fail":
            call.fail(Status(Code.INTERNAL, "no"))
        else:
            wanted.append(made)
        if what == "late":
            late[id(made)] = (call, size)
    cancelled = []

    def cancel(made: Request) -> None:
        cancelled.append(made)
        if id(made) in late:  # it was answered before the core took note
            call, size = late[id(made)]
            call.respond(bytes(size))

    rig.replies.clear(cancel)
    assert cancelled == wanted
    assert (len(rig.replies), rig.held) == (0, (0, others))
