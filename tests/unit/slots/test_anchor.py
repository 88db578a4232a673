"""An anchor places a device's own times on the host's clock, and says how well."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf

import pytest

from headrace.device.sim import SimDevice
from headrace.device.sim_stream import SimEvent
from headrace.slots.anchor import RENEW_AFTER_S, Anchor
from headrace.slots.batch import Placed
from headrace.slots.lane import Lane
from headrace.slots.slot import Slot
from helpers.core_rig import AddOne, Rig

AHEAD_S = 1000.0  # the host's clock is so far ahead of the device's


class LiveEvent(SimEvent):
    """An event during whose asking time passes, as on a real device."""

    def is_done(self) -> bool:
        self._device.run_until(self._device.now + 1e-6)
        return super().is_done()


class LiveDevice(SimDevice):
    """A virtual device whose time passes while the host asks its events."""

    is_answering = True

    def __init__(self) -> None:
        super().__init__(launch_s=0.25)

    def open_event(self, *, is_timed: bool = False) -> SimEvent:
        kind = LiveEvent if self.is_answering else SimEvent
        return kind(self, self._ledger, is_timed=is_timed)

    def clock(self) -> float:
        """The host's clock: it shows the same seconds from another zero."""
        return AHEAD_S + self.now


@pytest.fixture
def device() -> LiveDevice:
    return LiveDevice()


@pytest.fixture
def slot(device: LiveDevice) -> Iterator[Slot]:
    stream = device.open_stream()
    slot = Slot(
        0,
        device,
        stream,
        AddOne(device).open_context(stream),
        clock=device.clock,
        has_marks=True,
    )
    yield slot
    slot.close()


def ran(slot: Slot, device: LiveDevice) -> Lane:
    """A lane whose four marks are recorded around a launch of a quarter of a second."""
    lane = slot.lanes[0]
    stream = slot._stream
    stream.record(lane.marks[0])
    stream.record(lane.marks[1])
    stream.launch(lambda: None)
    stream.record(lane.marks[2])
    stream.record(lane.marks[3])
    device.run_until(device.now + 1)
    return lane


def placed(lane: Lane, device: LiveDevice) -> Placed:
    timing = lane.timing(device.clock())
    assert isinstance(timing, Placed)
    return timing


def test_what_the_device_timed_gets_its_place(device: LiveDevice, slot: Slot) -> None:
    """The begin is where the host's clock was then, to the accuracy that the anchor tells."""
    device.run_until(7)
    slot.anchor = anchor = Anchor(device, device.clock)
    began_at = device.clock()
    timing = placed(ran(slot, device), device)
    assert anchor.accuracy_s < 1e-5
    assert timing.begun_at == pytest.approx(began_at, abs=2 * anchor.accuracy_s)
    assert timing.execute_s == pytest.approx(0.25)
    assert timing.lane is slot.lanes[0]
    anchor.close()


def test_the_past_can_be_placed_too(device: LiveDevice, slot: Slot) -> None:
    """Work that began before the anchor was there lies before it."""
    began_at = device.clock()
    lane = ran(slot, device)
    slot.anchor = anchor = Anchor(device, device.clock)
    assert placed(lane, device).begun_at == pytest.approx(began_at, abs=2 * anchor.accuracy_s)
    anchor.close()


def test_it_is_measured_anew(device: LiveDevice, slot: Slot) -> None:
    """When the host's clock has drifted, places follow it after some seconds."""
    drift_s = 0.0
    slot.anchor = anchor = Anchor(device, lambda: device.clock() + drift_s)
    drift_s = 0.5
    device.run_until(device.now + RENEW_AFTER_S)
    began_at = device.clock() + drift_s
    begun_at = placed(ran(slot, device), device).begun_at
    assert begun_at == pytest.approx(began_at, abs=2 * anchor.accuracy_s)
    anchor.close()


def test_a_device_that_does_not_answer_holds_nobody_up(slot: Slot, device: LiveDevice) -> None:
    """Asking has an end; then the place is the enqueueing, and the accuracy says so."""
    device.is_answering = False
    slot.anchor = anchor = Anchor(device, device.clock)
    lane = ran(slot, device)
    lane.enqueued_at = 3.0
    assert isinf(anchor.accuracy_s)
    assert placed(lane, device).begun_at == 3.0
    anchor.close()


def test_without_an_anchor_nothing_is_placed() -> None:
    """A lane's timing is the plain one, and so it is again when the anchor is taken away."""
    rig = Rig()
    asked = rig.submit(b"abc")
    rig.run()
    assert asked.is_right
    assert not isinstance(asked.request.timing, Placed)
    rig.close()


def test_host_work_is_placed_by_the_host_itself() -> None:
    """A unified device needs no event: the launcher notes when it begins."""
    rig = Rig(is_unified=True)
    anchor = Anchor(rig.device, rig.clock)
    for slot in rig.slots:
        slot.anchor = anchor
    asked = rig.submit(b"abc")
    rig.run()
    timing = asked.request.timing
    assert isinstance(timing, Placed)
    assert timing.begun_at == timing.started_at
    assert anchor.accuracy_s == 0.0
    anchor.close()
    rig.close()
