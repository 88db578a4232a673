"""Callers that leave: deadlines, cancellations, broken connections, and what becomes of their work.

The slow model has one slot: two requests run one after another, two more may wait.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import numpy as np
import pytest

from helpers.http2_frames import RST_STREAM, http2_frame
from helpers.raw_http2 import RawHttp2, frame
from helpers.rpc_client import RpcClient, arrays, slow_message, told
from helpers.scrape import Scrape, is_at_rest, num_inside
from helpers.server import Server
from helpers.slow_calls import LONG, SHORT, assert_answered, fill, wait_until_inside

Code = grpc.StatusCode
CANCELLED = (8).to_bytes(4, "big")  # of HTTP/2's error codes


class Seen:
    """How the counters of the slow model have moved since this was made."""

    def __init__(self, server: Server) -> None:
        self.address = server.metrics_address
        self.before = Scrape(self.address)

    def moved(self, now: Scrape) -> tuple[float, float, float]:
        """(answered, run by the model and answered, dropped for a caller that left or would)."""
        dropped = sum(
            now("headrace_dropped", reason=reason) - self.before("headrace_dropped", reason=reason)
            for reason in ("cancelled", "expired", "hopeless")
        )
        answered = now("nv_inference_request_success") - self.before("nv_inference_request_success")
        executed = now("nv_inference_exec_count") - self.before("nv_inference_exec_count")
        return answered, executed, dropped

    def at_rest(self) -> tuple[float, float, float]:
        """The same, once nothing is left in the core."""
        return self.moved(Scrape.when(self.address, is_at_rest))


@pytest.fixture
def client(slow: Server) -> Iterator[RpcClient]:
    Scrape.when(slow.metrics_address, is_at_rest)
    with RpcClient(slow.address) as client:
        yield client
    Scrape.when(slow.metrics_address, is_at_rest, 30)


def test_a_queued_request_past_its_deadline_never_runs(client: RpcClient, slow: Server) -> None:
    """It costs the model nothing and is counted; those before it are answered."""
    seen = Seen(slow)
    calls = fill(client, slow, 2)
    late = client.start(slow_message(SHORT), timeout_s=0.25)
    assert told(late)[0] is Code.DEADLINE_EXCEEDED, told(late)
    Scrape.when(slow.metrics_address, lambda now: seen.moved(now)[2] == 1)
    assert_answered(calls)
    assert seen.at_rest() == (2, 2, 1)


def test_a_queued_request_that_is_cancelled_never_runs(client: RpcClient, slow: Server) -> None:
    """It leaves the queue at once, and its place is free."""
    seen = Seen(slow)
    calls = fill(client, slow, 4)
    calls[3].cancel()
    Scrape.when(slow.metrics_address, lambda now: seen.moved(now)[2] == 1)
    calls[3] = client.start(slow_message(SHORT, [3.0]))  # the queue of two has room again
    assert_answered(calls)
    assert seen.at_rest() == (4, 4, 1)


def test_one_in_flight_that_is_cancelled_keeps_its_block_until_it_is_done(
    client: RpcClient, slow: Server
) -> None:
    """The engine still writes there: what came in and out of the others is their own."""
    seen = Seen(slow)
    calls = fill(client, slow, 2)
    calls[0].cancel()
    assert calls[0].cancelled()
    after = client.start(slow_message(SHORT, [7.0]))
    reading = Scrape.when(slow.metrics_address, lambda now: num_inside(now) == 3)
    assert reading("headrace_blocks_leased") == 3
    assert seen.moved(reading)[2] == 0
    assert arrays(calls[1].result())["y"].tolist() == [1.0]
    assert arrays(after.result())["y"].tolist() == [7.0]
    assert seen.at_rest() == (2, 2, 1)


def test_a_deadline_in_flight_drops_the_result(client: RpcClient, slow: Server) -> None:
    """The caller is told in time, the block comes back when the engine is done."""
    client.start(slow_message(SHORT)).result()  # so that it is connected
    seen = Seen(slow)
    call = client.start(slow_message(4 * LONG), timeout_s=0.25)
    assert told(call)[0] is Code.DEADLINE_EXCEEDED
    Scrape.when(slow.metrics_address, lambda now: seen.moved(now)[2] == 1)
    assert seen.at_rest() == (0, 0, 1)
    assert arrays(client.start(slow_message(SHORT, [1.0])).result())["y"].tolist() == [1.0]


def test_a_connection_that_breaks_takes_its_requests_along(slow: Server) -> None:
    """In flight and queued, as if each were cancelled."""
    seen = Seen(slow)
    with RpcClient(slow.address) as other:
        calls = fill(other, slow, 4)
    assert {told(call)[0] for call in calls} == {Code.CANCELLED}
    assert seen.at_rest() == (0, 0, 4)


def test_a_deadline_that_has_passed_on_arrival(client: RpcClient, slow: Server) -> None:
    """A nanosecond is over before anybody looks: it never runs."""
    seen = Seen(slow)
    with RawHttp2(slow.address) as raw:
        stream = raw.open(extra=[("grpc-timeout", "1n")])
        raw.send(stream, frame(slow_message(LONG)))
        answer = raw.wait(stream)
    assert answer.grpc_status == Code.DEADLINE_EXCEEDED.value[0] or answer.reset is not None
    assert seen.at_rest()[:2] == (0, 0)


def test_a_generous_deadline_changes_nothing(client: RpcClient, slow: Server) -> None:
    """Requests with time enough are answered, also from the queue."""
    seen = Seen(slow)
    calls = [client.start(slow_message(50, [float(i)]), timeout_s=60) for i in range(3)]
    assert_answered(calls)
    assert seen.at_rest() == (3, 3, 0)


def test_cancelling_after_the_answer_changes_nothing(client: RpcClient, slow: Server) -> None:
    """The call is over."""
    seen = Seen(slow)
    call = client.start(slow_message(SHORT, [5.0]))
    assert arrays(call.result())["y"].tolist() == [5.0]
    call.cancel()
    assert seen.at_rest() == (1, 1, 0)


def test_resetting_a_call_again_and_again(client: RpcClient, slow: Server) -> None:
    """In flight and queued, by frames that no client would send: each request ends once."""
    seen = Seen(slow)
    with RawHttp2(slow.address) as raw:
        streams = []
        for number in range(3):
            streams.append(raw.open())
            raw.send(streams[-1], frame(slow_message(LONG, [float(number)])))
            wait_until_inside(slow, number + 1)
        for _ in range(4):
            for stream in streams:
                raw.send_raw(http2_frame(RST_STREAM, 0, stream, CANCELLED))
        after = client.start(slow_message(SHORT, [7.0]))
        assert arrays(after.result())["y"].tolist() == [7.0]
    assert seen.at_rest() == (1, 1, 3)


def test_no_answer_is_anothers_after_many_cancellations(client: RpcClient, slow: Server) -> None:
    """Blocks of the cancelled are used again only when the engine is done with them."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        for _ in range(2):
            client.start(slow_message(40, [100.0] * 3)).cancel()
        values = rng.integers(0, 100, 3).astype(float).tolist()
        # The cancelled may still fill the queue.
        while told(call := client.start(slow_message(40, values)))[0] is Code.UNAVAILABLE:
            continue
        assert arrays(call.result())["y"].tolist() == values
