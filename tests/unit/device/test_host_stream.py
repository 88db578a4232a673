"""Streams of the host device, beyond the contract: threads, what they hold, and the inline one."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator

import pytest

from headrace.device.host import HostDevice
from headrace.errors import EngineError


@pytest.fixture
def device() -> Iterator[HostDevice]:
    device = HostDevice()
    yield device
    device.close()


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("headrace-stream")}


def refuse() -> None:
    raise EngineError("refused")


def divide_by_zero() -> None:
    raise ZeroDivisionError


def test_a_stream_is_one_thread_until_its_close(device: HostDevice) -> None:
    """The worker starts with the stream and has ended when close returns."""
    before = workers()
    stream = device.open_stream()
    (worker,) = workers() - before
    stream.close()
    assert not worker.is_alive()


def test_an_idle_worker_holds_nothing(device: HostDevice) -> None:
    """What a launch referred to can go as soon as it has run, not when the next one comes."""

    class Block:
        """Something that can be watched going."""

        def work(self) -> None:
            """Take no time."""

    gone = threading.Event()
    stream, block = device.open_stream(), Block()
    weakref.finalize(block, gone.set)
    stream.launch(block.work)  # the last item: nothing enqueued later takes its place
    del block
    assert gone.wait(5.0)
    stream.close()


def test_a_listener_that_fails_stops_nothing(
    device: HostDevice, caplog: pytest.LogCaptureFixture
) -> None:
    """The error of on_progress is logged, and the stream goes on."""

    def fail() -> None:
        raise RuntimeError("the loop is closed")

    device.on_progress = fail
    stream, first, second = device.open_stream(), device.open_event(), device.open_event()
    stream.record(first)
    stream.record(second)
    stream.synchronize()
    assert first.is_done()
    assert second.is_done()
    assert "the loop is closed" in caplog.text
    for thing in (stream, first, second):
        thing.close()


@pytest.mark.parametrize("opener", ["open_stream", "open_inline_stream"])
def test_an_error_that_no_event_saw_is_logged(
    device: HostDevice, caplog: pytest.LogCaptureFixture, opener: str
) -> None:
    """Nothing is lost without a trace when a stream is closed."""
    stream = getattr(device, opener)()
    stream.launch(refuse)
    with caplog.at_level(logging.ERROR):
        stream.close()
    assert "refused" in caplog.text


@pytest.mark.parametrize("opener", ["open_stream", "open_inline_stream"])
def test_the_first_error_is_the_one_told(device: HostDevice, opener: str) -> None:
    """Of several failures before one event it raises the first: the others may follow from it."""
    stream, event = getattr(device, opener)(), device.open_event()
    stream.launch(refuse)
    stream.launch(divide_by_zero)
    stream.record(event)
    stream.synchronize()
    with pytest.raises(EngineError, match="refused"):
        event.is_done()
    stream.close()
    event.close()


def test_an_unexpected_error_is_told_as_it_is(device: HostDevice) -> None:
    """A bug in launched work is not dressed up as an engine's error."""
    stream, event = device.open_stream(), device.open_event()
    stream.launch(divide_by_zero)
    stream.record(event)
    stream.synchronize()
    with pytest.raises(ZeroDivisionError):
        event.is_done()
    stream.close()
    event.close()


def test_inline_work_is_done_on_return(device: HostDevice) -> None:
    """An inline stream uses the caller's thread, and nobody is told what the caller knows."""
    told: list[None] = []
    device.on_progress = lambda: told.append(None)
    stream, event = device.open_inline_stream(), device.open_event()
    ran_on: list[int] = []
    stream.launch(lambda: ran_on.append(threading.get_ident()))
    assert ran_on == [threading.get_ident()]
    stream.record(event)
    assert event.is_done()
    assert told == []
    stream.close()
    event.close()


def test_an_interrupt_passes_through_inline_work(device: HostDevice) -> None:
    """Ctrl-C in the middle of inline work is not kept for an event."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    stream, event = device.open_inline_stream(), device.open_event()
    with pytest.raises(KeyboardInterrupt):
        stream.launch(interrupt)
    stream.record(event)
    assert event.is_done()
    stream.close()
    event.close()


def test_the_hand_over_is_measured_once(device: HostDevice) -> None:
    """It is some time, it is remembered, and it leaves neither threads nor a listener behind."""
    before = workers()
    device.on_progress = pytest.fail
    hand_over_s = device.hand_over_s()
    assert hand_over_s > 0.0
    assert device.hand_over_s() == hand_over_s
    assert workers() == before


def test_closing_names_what_is_open(caplog: pytest.LogCaptureFixture) -> None:
    """A device closed too early says what was forgotten."""
    device = HostDevice()
    stream, event = device.open_stream(), device.open_event()
    event.close()
    with caplog.at_level(logging.WARNING):
        device.close()
    assert "closed before stream 1" in caplog.text
    assert "event" not in caplog.text
    stream.close()
