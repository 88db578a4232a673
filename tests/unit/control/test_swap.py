"""Versions that take each other's place: nothing is lost, nothing is closed too early or kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from headrace.control import swap as swap_module
from headrace.errors import NotFoundError, RetiredError, UnavailableError
from headrace.metrics.exposition import render
from headrace.slots.poller import STALL_TIMEOUT_S
from headrace.slots.state import SlotState
from helpers.swap_rig import GRACE_S, NAME, SwapRig


@pytest.fixture
def rig() -> Iterator[SwapRig]:
    rig = SwapRig()
    yield rig
    rig.close_all()


def states(rig: SwapRig) -> list[tuple[str, str, str]]:
    return [(entry.version, entry.state, entry.reason) for entry in rig.catalog.index()]


def test_what_came_for_the_old_version_is_served_by_it(rig: SwapRig) -> None:
    """In flight and queued; who looks for the model finds the new one at once."""
    old, new = rig.version(1), rig.version(2)
    rig.serve(old)
    asked = [rig.ask(old.model) for _ in range(6)]
    rig.link.step(rig.clock())
    rig.serve(new)
    assert rig.catalog.find(NAME, "") is new.model
    assert states(rig) == [("1", "UNLOADING", ""), ("2", "READY", "")]
    late = rig.ask(new.model)
    rig.swap.see_off()
    rig.run()
    assert all(one.is_right for one in (*asked, late))
    assert old.model.line.pool.slots[0].state is SlotState.CLOSED
    assert new.model.line.pool.slots[0].state is SlotState.OPEN
    assert states(rig) == [("1", "UNAVAILABLE", "unloaded"), ("2", "READY", "")]


def test_its_slots_are_not_closed_before_the_last_reply_was_told(rig: SwapRig) -> None:
    """However often somebody looks whether it is done."""
    old = rig.version(1)
    rig.serve(old)
    asked = [rig.ask(old.model) for _ in range(6)]
    seen: list[int] = []
    wait = rig.swap._wait

    def look(seconds: float) -> None:
        seen.append(sum(one.num_ends for one in asked))
        assert old.model.line.pool.slots[0].state is SlotState.OPEN
        wait(seconds / 100)

    rig.swap._wait = look
    rig.serve(rig.version(2))
    rig.swap.see_off()
    assert seen[0] == 0
    assert all(one.is_right for one in asked)


def test_a_request_on_its_way_to_the_old_version_is_sent_on(rig: SwapRig) -> None:
    """It is told so, instead of going where nobody looks any more."""
    old = rig.version(1)
    rig.serve(old)
    rig.serve(rig.version(2))
    with pytest.raises(RetiredError):
        rig.ask(old.model)
    rig.swap.see_off()
    with pytest.raises(RetiredError):
        rig.ask(old.model)


def test_a_version_that_has_not_changed_is_not_touched(rig: SwapRig) -> None:
    """Its slots work on."""
    kept, old = rig.version(1), rig.version(2)
    rig.serve(kept, old)
    rig.serve(rig.version(3), kept=[kept.model])
    asked = rig.ask(kept.model)
    rig.swap.see_off()
    rig.run()
    assert asked.is_right
    assert sorted(rig.catalog.versions(NAME)) == [1, 3]


def test_a_model_that_is_unloaded_is_gone_with_its_metrics(rig: SwapRig) -> None:
    """At once for callers, and from the metrics when its last request has ended."""
    model = rig.version(1)
    rig.serve(model)
    asked = rig.ask(model.model)
    assert f'model="{NAME}"' in render(rig.all_metrics.registry)[0].decode()
    rig.serve()
    with pytest.raises(NotFoundError, match="has no available versions"):
        rig.catalog.find(NAME, "")
    rig.swap.see_off()
    assert asked.is_right
    assert f'model="{NAME}"' not in render(rig.all_metrics.registry)[0].decode()


def test_metrics_of_a_version_that_is_replaced_by_itself_stay(rig: SwapRig) -> None:
    """A reload is no restart of its counters."""
    rig.serve(rig.version(1))
    rig.all_metrics.model(NAME, "1").dropped("queue_full")
    rig.serve(rig.version(1))
    rig.swap.see_off()
    assert rig.all_metrics.model(NAME, "1").read().drops["queue_full"] == 1
    assert states(rig) == [("1", "READY", "")]


def test_a_hundred_swaps_leave_nothing_behind() -> None:
    """No slot, no buffer, no block, no line."""
    rig = SwapRig()
    for _ in range(100):
        rig.serve(rig.version(1, num_slots=2, blocks=3))
        asked = [rig.ask(rig.catalog.find(NAME, ""), bytes([index])) for index in range(3)]
        rig.swap.see_off()
    rig.run()
    assert all(one.is_right for one in asked)
    assert len(rig.scheduler._lines) == 1
    assert rig.blocks.allocated_bytes == (3 + 3) * 4096  # those of a model, and of requests amid
    rig.close_all()


def test_what_waits_longer_than_the_grace_is_ended(rig: SwapRig) -> None:
    """On the thread that answers calls; what is in flight is served all the same."""
    old = rig.version(1)
    rig.serve(old)
    asked = [rig.ask(old.model) for _ in range(5)]
    rig.link.step(rig.clock())
    rig.device.launch_s = GRACE_S  # of what is enqueued from now on
    rig.serve(rig.version(2))
    old.model.line.batcher.next_batch = lambda now: None  # type: ignore[method-assign]
    rig.swap.see_off()
    assert [one.is_right for one in asked] == [True, True, False, False, False]
    assert all(isinstance(one.errors[0], UnavailableError) for one in asked[2:])


def test_a_slot_that_never_ends_keeps_nobody_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The poller gives it up; it is closed beside, and left there when that does not end."""
    monkeypatch.setattr(swap_module, "CLOSE_S", 0.01)
    rig, release = SwapRig(), threading.Event()
    old = rig.version(1)
    rig.serve(old)
    asked = rig.ask(old.model)
    rig.link.step(rig.clock())
    (slot,) = old.model.line.pool.slots

    def never() -> None:
        release.wait()

    def gives_up(_: float) -> None:
        rig.scheduler.step(STALL_TIMEOUT_S + 1)

    slot._stream.synchronize = never  # type: ignore[method-assign]
    rig.swap._wait = gives_up
    rig.serve(rig.version(2))
    rig.swap.see_off()
    assert asked.num_ends == 1
    assert "do not close" in caplog.text
    release.set()
    for thread in threading.enumerate():
        if thread.name == "headrace-closing":
            thread.join()
