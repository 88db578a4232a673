"""The link inside one process: one thread in the core at a time, and no silence after a bug."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headrace.errors import DeviceError, RetiredError, UnavailableError
from headrace.link.local import LocalLink
from helpers.core_rig import Rig


def test_a_bug_in_a_step_ends_everything_and_is_told() -> None:
    """Callers get an error, new ones are refused, and the server can see that it is broken."""
    rig = Rig(num_slots=1)
    link = LocalLink(rig.scheduler)
    done, *rest = [rig.request(bytes([index])) for index in range(5)]
    for asked in (done, *rest):
        link.submit(asked.request, rig.clock())
    link.step(rig.clock())
    rig.device.run_until_idle()

    def broken(_: float) -> None:
        raise ZeroDivisionError("a bug")

    rig.line.batcher.next_batch = broken  # type: ignore[assignment, method-assign]
    assert link.step(rig.clock()) is False
    assert [asked.num_ends for asked in rig.asked] == [1] * 5
    assert done.is_right  # it had come back from the device before the bug
    assert isinstance(rig.scheduler.sticky, DeviceError)
    assert link.is_idle
    with pytest.raises(UnavailableError):
        link.submit(rig.request(b"new").request, rig.clock())


def test_threads_take_turns_in_the_core() -> None:
    """Submits from many threads, steps from one: every request is answered once."""
    rig = Rig(num_slots=2, max_queue_size=10_000)
    link = LocalLink(rig.scheduler)
    asked = [rig.request(bytes([index % 256])) for index in range(400)]

    def submit(part: int) -> None:
        for one in asked[part::4]:
            link.submit(one.request, 0.0)

    threads = [threading.Thread(target=submit, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        link.step(0.0)
    for thread in threads:
        thread.join()
    rig.run()
    assert all(one.is_right for one in asked)
    rig.close()


def test_a_request_whose_reply_is_known_ends_at_once() -> None:
    """It needs neither a block nor a slot, and finds the core to itself."""
    rig = Rig(num_slots=1)
    link = LocalLink(rig.scheduler)
    asked = rig.request(b"x")
    told: list[bool] = []
    asked.request.on_end = lambda *_: told.append(link._lock.locked())
    link.answer(asked.request)
    assert (told, rig.scheduler.is_idle) == ([True], True)
    rig.close()


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (LocalLink.refuse_new, UnavailableError),
        (LocalLink.close, UnavailableError),
        (lambda link: link.retire_line(link._scheduler._lines[0]), RetiredError),
        (lambda link: link._scheduler.break_down(DeviceError("dead")), UnavailableError),
    ],
    ids=["leaving", "closed", "retired", "dead"],
)
def test_a_known_reply_is_no_way_around_what_serves_nothing(
    end: Callable[[LocalLink], None], error: type[Exception]
) -> None:
    """As every request is refused then, and nobody is told twice."""
    rig = Rig(num_slots=1)
    link = LocalLink(rig.scheduler)
    end(link)
    asked = rig.request(b"x")
    with pytest.raises(error):
        link.answer(asked.request)
    assert asked.num_ends == 0
    rig.close()
