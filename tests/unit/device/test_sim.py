"""The virtual device shows, every time, what a real one shows on a bad day."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator

import numpy as np
import pytest

from headrace.device.base import DevicePtr, HostPtr
from headrace.device.sim import SimDevice
from headrace.device.sim_memory import FREED, FRESH
from headrace.errors import DeviceError, EngineError
from helpers.device_rig import SimRig, array


@pytest.fixture
def rig() -> Iterator[SimRig]:
    with SimRig() as rig:
        yield rig


class TestLateness:
    """Copies take effect when they end and not before."""

    def test_a_block_reused_too_early_corrupts_the_data(self, rig: SimRig) -> None:
        """What is written into the source after the enqueueing is what arrives."""
        block, memory, stream = rig.host(4), rig.memory(4), rig.stream()
        array(block)[:] = 1
        stream.copy_h2d(memory.ptr, block.ptr, 4)
        array(block)[:] = 2  # the bug: the event of the copy is not done
        rig.sim.run_until_idle()
        assert rig.sim.bytes_at(memory.ptr, 4).tolist() == [2, 2, 2, 2]

    def test_a_result_read_too_early_is_not_there(self, rig: SimRig) -> None:
        """The destination keeps its bytes until the copy has ended."""
        back, memory, stream = rig.host(4), rig.memory(4), rig.sim.open_stream()
        rig.sim.bytes_at(memory.ptr, 4)[:] = 3
        stream.copy_d2h(back.ptr, memory.ptr, 4)
        assert array(back).tolist() == [FRESH] * 4
        rig.sim.complete_next(stream)
        assert array(back).tolist() == [3] * 4
        stream.close()

    def test_launched_work_runs_when_it_ends(self, rig: SimRig) -> None:
        """A launch has no effect before its turn."""
        stream = rig.stream()
        ran: list[float] = []
        rig.sim.launch_s = 2.0
        stream.launch(lambda: ran.append(rig.sim.now))
        stream.launch(lambda: ran.append(rig.sim.now))
        assert ran == []
        assert rig.sim.step()
        assert ran == [2.0]
        assert rig.sim.step()
        assert ran == [2.0, 4.0]
        assert not rig.sim.step()


class TestTime:
    """Durations add up along a stream, and streams run side by side."""

    def test_copies_take_their_bytes_over_the_bandwidth(self) -> None:
        """A copy of 500 bytes at 1000 bytes a second ends after half a second."""
        with SimRig() as rig:
            rig.sim.copy_bytes_per_s = 1000.0
            block, memory, stream = rig.host(500), rig.memory(500), rig.stream()
            stream.copy_h2d(memory.ptr, block.ptr, 500)
            stream.copy_h2d(memory.ptr, block.ptr, 250)
            assert rig.sim.next_due_s() == 0.5
            rig.sim.run_until_idle()
            assert rig.sim.now == 0.75
            assert rig.sim.next_due_s() == math.inf

    def test_streams_run_side_by_side_in_the_order_of_time(self, rig: SimRig) -> None:
        """What ends first is first, over all streams; equal times keep the order of enqueueing."""
        ended: list[str] = []
        for name, duration_s in (("slow", 3.0), ("fast", 1.0), ("also fast", 1.0)):
            rig.sim.launch_s = duration_s
            stream = rig.stream()
            for turn in (1, 2):
                stream.launch(
                    lambda name=name, turn=turn: ended.append(f"{name} {turn}")  # type: ignore[misc]
                )
        rig.sim.run_until_idle()
        assert ended == ["fast 1", "also fast 1", "fast 2", "also fast 2", "slow 1", "slow 2"]
        assert rig.sim.now == 6.0

    def test_work_enqueued_later_starts_later(self, rig: SimRig) -> None:
        """An idle stream does not work ahead."""
        stream, event = rig.stream(), rig.event(is_timed=True)
        rig.sim.run_until(10.0)
        rig.sim.launch_s = 1.0
        stream.launch(lambda: None)
        stream.record(event)
        rig.sim.run_until(10.5)
        assert not event.is_done()
        rig.sim.run_until(11.0)
        assert event.is_done()

    def test_one_stream_can_be_taken_ahead(self, rig: SimRig) -> None:
        """complete_next ends one item of the stream named, out of the order of time."""
        early, late = rig.sim.open_stream(), rig.sim.open_stream()
        events = rig.sim.open_event(), rig.sim.open_event()
        rig.sim.launch_s = 1.0
        early.launch(lambda: None)
        early.record(events[0])
        rig.sim.launch_s = 5.0
        late.launch(lambda: None)
        late.record(events[1])
        rig.sim.complete_next(late)
        rig.sim.complete_next(late)
        assert [event.is_done() for event in events] == [False, True]
        assert rig.sim.now == 5.0
        rig.sim.run_until_idle()
        assert rig.sim.now == 5.0
        for thing in (early, late, *events):
            thing.close()

    def test_waiting_for_nothing_is_a_bug(self, rig: SimRig) -> None:
        """What would hang on a real device ends the test here."""
        stream, event = rig.sim.open_stream(), rig.sim.open_event()
        with pytest.raises(AssertionError, match="nothing is enqueued"):
            rig.sim.complete_next(stream)
        event.num_recorded = 1  # as if a recording had been lost
        with pytest.raises(AssertionError, match="never be done"):
            rig.sim.run_until_done(event)
        stream.close()
        event.close()

    def test_timed_events_show_virtual_seconds(self, rig: SimRig) -> None:
        """A duration is exactly that of the work between the events."""
        stream, start, end = rig.stream(), rig.event(is_timed=True), rig.event(is_timed=True)
        rig.sim.launch_s = 0.25
        stream.record(start)
        stream.launch(lambda: None)
        stream.record(end)
        rig.sim.run_until_idle()
        assert rig.sim.elapsed_s(start, end) == 0.25


class TestFaults:
    """Faults come when the test says, and are told as a real device tells them."""

    def test_the_chosen_launch_fails(self, rig: SimRig) -> None:
        """Only the launch that was chosen fails, and its work does not run."""
        stream, ran = rig.stream(), list[int]()
        rig.sim.fail_launch(EngineError("refused"), after=1)
        events = [rig.event() for _ in range(3)]
        for number, event in enumerate(events):
            stream.launch(lambda number=number: ran.append(number))  # type: ignore[misc]
            stream.record(event)
        rig.sim.run_until_idle()
        assert ran == [0, 2]
        assert events[0].is_done()
        with pytest.raises(EngineError, match="refused"):
            events[1].is_done()
        assert events[2].is_done()

    def test_a_launch_can_be_refused_at_once(self, rig: SimRig) -> None:
        """As on a GPU, where the call itself says no and nothing is enqueued."""
        stream = rig.stream()
        rig.sim.fail_launch(EngineError("refused"), is_refused=True)
        with pytest.raises(EngineError, match="refused"):
            stream.launch(pytest.fail)
        assert rig.sim.next_due_s() == math.inf
        stream.launch(lambda: None)

    def test_the_device_dies_at_its_time(self) -> None:
        """What ended before the fault has happened; after it nothing does, and all calls say so."""
        sim = SimDevice(copy_bytes_per_s=1.0)
        told: list[float] = []
        sim.on_progress = lambda: told.append(sim.now)
        block, memory = sim.alloc_host(4), sim.alloc_device(4)
        stream, first, second = sim.open_stream(), sim.open_event(), sim.open_event()
        array(block)[:] = [1, 2, 3, 4]
        stream.copy_h2d(memory.ptr, block.ptr, 1)
        stream.record(first)
        stream.copy_h2d(memory.ptr, block.ptr, 4)
        stream.record(second)
        sim.fail_device(at_s=3.0)
        sim.run_until(2.0)
        assert first.is_done()
        sim.check()
        sim.run_until(10.0)
        assert told == [1.0, 3.0]
        assert sim.bytes_at(memory.ptr, 4).tolist() == [1, FRESH, FRESH, FRESH]
        for call in (
            first.is_done,
            second.is_done,
            sim.check,
            stream.synchronize,
            sim.open_stream,
            sim.open_event,
            lambda: sim.alloc_device(1),
            lambda: stream.record(first),
        ):
            with pytest.raises(DeviceError, match="cudaErrorIllegalAddress 700") as caught:
                call()
            assert caught.value.sticky
        for thing in (stream, first, second, block, memory, sim):
            thing.close()

    def test_the_device_dies_now(self) -> None:
        """Without a time the fault is there at once, on an idle device too."""
        sim = SimDevice()
        sim.fail_device()
        with pytest.raises(DeviceError):
            sim.check()

    def test_memory_runs_out(self) -> None:
        """The sizes given are the memory there is, and closing gives it back."""
        sim = SimDevice(total_bytes=1000, total_host_bytes=500)
        memory, block = sim.alloc_device(600), sim.alloc_host(500)
        assert sim.memory_info() == (400, 1000)
        with pytest.raises(DeviceError, match=r"401 bytes of device memory.*400 of 1000") as caught:
            sim.alloc_device(401)
        assert (caught.value.code, caught.value.sticky) == (2, False)
        with pytest.raises(DeviceError, match=r"1 bytes of host memory.*0 of 500"):
            sim.alloc_host(1)
        memory.close()
        memory.close()
        assert sim.memory_info() == (1000, 1000)
        block.close()
        sim.close()

    def test_the_chosen_allocation_fails(self) -> None:
        """For tests of what is cleaned up when the third of four buffers cannot be had."""
        sim = SimDevice()
        sim.fail_alloc(after=1)
        block = sim.alloc_host(1)
        with pytest.raises(DeviceError, match="cudaErrorMemoryAllocation"):
            sim.alloc_device(1)
        sim.alloc_device(1).close()
        assert sim.leaks() == ["host buffer 1"]
        block.close()


class TestMisuse:
    """What would be silent corruption on a GPU is a failed test here."""

    def test_a_buffer_closed_under_a_copy(self, rig: SimRig) -> None:
        """Freeing what a copy in flight still needs is found when the copy ends."""
        block, memory, stream = rig.host(8), rig.memory(8), rig.stream()
        stream.copy_h2d(memory.ptr, block.ptr, 8)
        memory.close()
        with pytest.raises(AssertionError, match=r"device buffer \d+ .*used after its close"):
            rig.sim.run_until_idle()

    def test_a_closed_buffer_is_not_copied(self, rig: SimRig) -> None:
        """Enqueueing a copy of freed memory is found at once."""
        block, memory, stream = rig.host(8), rig.memory(8), rig.stream()
        block.close()
        with pytest.raises(AssertionError, match="used after its close"):
            stream.copy_h2d(memory.ptr, block.ptr, 8)

    def test_freed_memory_holds_wrong_bytes(self, rig: SimRig) -> None:
        """Whoever kept a view of freed memory does not find the old bytes in it."""
        block = rig.host(4)
        kept = array(block)
        kept[:] = 1
        block.close()
        assert kept.tolist() == [FREED] * 4

    def test_a_copy_over_the_end(self, rig: SimRig) -> None:
        """One byte too many is one too many, at either end, although it may hit other memory."""
        block, memory, stream = rig.host(8), rig.memory(8), rig.stream()
        with pytest.raises(AssertionError, match="not inside"):
            stream.copy_h2d(memory.ptr, block.ptr, 9)
        with pytest.raises(AssertionError, match="not inside"):
            stream.copy_d2h(HostPtr(block.ptr + 1), memory.ptr, 8)
        with pytest.raises(AssertionError, match="no buffer"):
            stream.copy_h2d(DevicePtr(8), block.ptr, 1)

    def test_swapped_places(self, rig: SimRig) -> None:
        """A host address is no device address, except where memory is unified."""
        block, memory, stream = rig.host(8), rig.memory(8), rig.stream()
        with pytest.raises(AssertionError, match="used as device memory"):
            stream.copy_h2d(DevicePtr(block.ptr), HostPtr(memory.ptr), 8)
        with SimRig(is_unified=True) as unified:
            block, stream = unified.host(16), unified.stream()
            array(block)[:8] = 5
            stream.copy_h2d(DevicePtr(block.ptr + 8), block.ptr, 8)
            unified.sim.run_until_idle()
            assert array(block).tolist() == [5] * 16

    def test_a_bug_in_launched_work_ends_the_test(self, rig: SimRig) -> None:
        """An AssertionError is not kept for an event: it is raised by the step."""

        def use_nothing() -> None:
            rig.sim.bytes_at(8, 1)

        stream = rig.stream()
        stream.launch(use_nothing)
        with pytest.raises(AssertionError, match="no buffer"):
            rig.sim.step()

    def test_leaks_are_named(self) -> None:
        """A device closed before what it handed out says what that is."""
        sim = SimDevice()
        things = (
            sim.open_stream(),
            sim.open_event(),
            sim.alloc_host(1),
            sim.alloc_device(1),
        )
        assert sim.leaks() == ["stream 1", "event 2", "host buffer 3", "device buffer 4"]
        with pytest.raises(AssertionError, match="before stream 1, event 2, host buffer 3"):
            sim.close()
        for thing in things:
            thing.close()
        assert sim.leaks() == []
        sim.close()


def test_memory_is_real(rig: SimRig) -> None:
    """Pointers are addresses that any code of the process can use."""
    memory = rig.memory(16)
    through_address = np.ctypeslib.as_array((ctypes.c_ubyte * 16).from_address(memory.ptr))
    through_address[:] = 9
    assert rig.sim.bytes_at(memory.ptr, 16).tolist() == [9] * 16
