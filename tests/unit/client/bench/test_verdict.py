"""Whether a report says that the client was the limit."""

from __future__ import annotations

import math

import pytest

from headrace_client.bench.verdict import ClientUse, judge

IDLE = ClientUse((0.2, 0.3), 0.7, 0.5, is_local=False)


def test_a_client_with_time_left() -> None:
    """Says so, with the figures that show it."""
    verdict = judge(IDLE, lag_p99_s=0.0002, latency_p99_s=0.01, num_dropped=0)
    assert verdict.word == "ok"
    assert verdict.text == (
        "The client was not the limit: its event loops were busy at most 30% of the time, "
        "and it was late by 0.2 ms (p99)."
    )


def test_a_busy_event_loop() -> None:
    """One process that has no time left is enough."""
    use = ClientUse((0.2, 0.95), 1.3, 0.5, is_local=False)
    verdict = judge(use, 0.0002, 0.01, 0)
    assert (verdict.client_was_limit, verdict.word) == (True, "limit")
    assert "busy 95% of the time; take more --processes" in verdict.text


def test_dropped_requests() -> None:
    """What was due and not sent is the client's doing."""
    verdict = judge(IDLE, 0.0002, 0.01, 1234)
    assert verdict.client_was_limit
    assert "1,234 requests were due and not sent" in verdict.text


@pytest.mark.parametrize(
    ("lag_ms", "latency_ms", "is_late"),
    [
        (0.9, 1.0, False),  # below a millisecond nobody cares
        (5, 20, True),  # a quarter of what is reported is the client's own
        (5, 100, False),  # a twentieth
        (5, math.nan, True),  # nothing was answered
        (math.nan, 5, False),  # not measured
    ],
)
def test_lateness_is_seen_against_the_latency(
    lag_ms: float, latency_ms: float, *, is_late: bool
) -> None:
    """A lag matters where it is a part of the latencies that matters."""
    verdict = judge(IDLE, lag_ms / 1e3, latency_ms / 1e3, 0)
    assert verdict.client_was_late is is_late
    assert not verdict.client_was_limit
    assert ("which is in the latencies" in verdict.text) is is_late


@pytest.mark.parametrize("share", [0.8, None])
@pytest.mark.parametrize("is_local", [True, False])
def test_a_machine_with_cores_left(*, is_local: bool, share: float | None) -> None:
    """Is nothing to speak of, and neither is one of which nobody knows."""
    verdict = judge(ClientUse((0.1,), 0.1, share, is_local), 0.0, 0.01, 0)
    assert (verdict.word, "machine" in verdict.text) == ("ok", False)


def test_a_full_machine() -> None:
    """The client's own is its limit; one that is the server's, too, is told of."""
    own = judge(ClientUse((0.1,), 0.1, 0.99, is_local=False), 0.0, 0.01, 0)
    assert own.client_was_limit
    assert "the cores of this machine were 99% busy" in own.text
    shared = judge(ClientUse((0.1,), 0.1, 0.99, is_local=True), 0.0, 0.01, 0)
    assert not shared.client_was_limit
    assert "they took time from each other" in shared.text
