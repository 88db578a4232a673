"""The link between threads: what one asks is never answered from the middle of another's step."""

from __future__ import annotations

import threading

from headrace.link.local import LocalLink
from helpers.core_rig import Rig

WAIT_S = 10.0
HELD_S = 0.1  # how long an answer that must not come is waited for


def test_a_core_that_is_ending_a_request_is_not_idle() -> None:
    """A drain asks from the loop while a launcher steps: a reply being written is not done yet."""
    rig = Rig()
    link = LocalLink(rig.scheduler)
    asked = rig.request(b"abc")
    record: list[str] = []
    is_ending, may_end = threading.Event(), threading.Event()

    def on_end(*_: object) -> None:
        is_ending.set()
        may_end.wait(WAIT_S)
        record.append("ended")

    asked.request.on_end = on_end
    link.submit(asked.request, rig.clock())
    link.step(rig.clock())
    rig.device.run_until(1.0)
    stepping = threading.Thread(target=link.step, args=(rig.clock(),))
    asking = threading.Thread(target=lambda: record.append(f"idle: {link.is_idle}"))
    stepping.start()
    assert is_ending.wait(WAIT_S)
    asking.start()
    asking.join(HELD_S)
    may_end.set()
    stepping.join(WAIT_S)
    asking.join(WAIT_S)
    assert record == ["ended", "idle: True"]
    rig.close()
