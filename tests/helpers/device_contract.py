"""What every device does, as tests; nothing here knows which device it is.

A test class for one device derives from the contracts that it keeps, and has a fixture `rig`.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from typing import NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace.device.base import ALIGNMENT_BYTES, DeviceBuffer, HostPtr, Stream
from headrace.errors import DeviceError, EngineError
from helpers.device_rig import Rig, array


def random_bytes(size_bytes: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)


def refuse() -> NoReturn:
    raise EngineError("refused")


class DeviceContract:
    """Streams, events and memory of any device."""

    def test_data_arrives_by_the_event(self, rig: Rig) -> None:
        """What goes to the device and back is what was sent, once the event is done."""
        sent, back, memory = rig.host(5000), rig.host(5000), rig.memory(5000)
        stream, event = rig.stream(), rig.event()
        array(sent)[:] = random_bytes(5000)
        stream.copy_h2d(memory.ptr, sent.ptr, 5000)
        stream.copy_d2h(back.ptr, memory.ptr, 5000)
        stream.record(event)
        rig.wait(event)
        assert np.array_equal(array(back), random_bytes(5000))

    def test_work_of_a_stream_is_in_order(self, rig: Rig) -> None:
        """Of copies to one address, each reader sees the one enqueued last before it."""
        source, back, memory = rig.host(64), rig.host(64), rig.memory(1)
        stream, event = rig.stream(), rig.event()
        array(source)[:] = random_bytes(64)
        for position in range(64):
            stream.copy_h2d(memory.ptr, type(source.ptr)(source.ptr + position), 1)
            stream.copy_d2h(type(back.ptr)(back.ptr + position), memory.ptr, 1)
        stream.record(event)
        rig.wait(event)
        assert np.array_equal(array(back), random_bytes(64))

    def test_launches_run_once_each_in_order(self, rig: Rig) -> None:
        """Launched work runs in the order of launching."""
        stream = rig.stream()
        ran: list[int] = []
        for number in range(100):
            stream.launch(lambda number=number: ran.append(number))  # type: ignore[misc]
        stream.synchronize()
        assert ran == list(range(100))

    def test_a_part_of_a_buffer_can_be_copied(self, rig: Rig) -> None:
        """A copy touches its own bytes and none beside them."""
        source, back, memory = rig.host(300), rig.host(300), rig.memory(300)
        stream = rig.stream()
        array(source)[:] = random_bytes(300)
        array(back)[:] = 7
        stream.copy_h2d(memory.ptr, source.ptr, 300)
        part = type(memory.ptr)(memory.ptr + 100)
        stream.copy_d2h(type(back.ptr)(back.ptr + 50), part, 99)
        stream.synchronize()
        expected = np.full(300, 7, np.uint8)
        expected[50:149] = random_bytes(300)[100:199]
        assert np.array_equal(array(back), expected)

    def test_a_block_is_reused_after_its_event(self, rig: Rig) -> None:
        """One block and one event serve call after call, and no call sees another's bytes."""
        block, memory = rig.host(256), rig.memory(256)
        stream, event = rig.stream(), rig.event()
        for seed in range(50):
            array(block)[:] = random_bytes(256, seed)
            stream.copy_h2d(memory.ptr, block.ptr, 256)
            stream.record(event)
            rig.wait(event)
            array(block)[:] = 0
            stream.copy_d2h(block.ptr, memory.ptr, 256)
            stream.record(event)
            rig.wait(event)
            assert np.array_equal(array(block), random_bytes(256, seed))

    def test_many_streams_do_not_mix(self, rig: Rig) -> None:
        """Sixteen streams with fifty round trips each keep their data apart."""
        streams = [rig.stream() for _ in range(16)]
        blocks = [rig.host(100) for _ in streams]
        memories: list[DeviceBuffer] = [rig.memory(100) for _ in streams]
        for seed, block in enumerate(blocks):
            array(block)[:] = random_bytes(100, seed)
        for _ in range(50):
            for stream, block, memory in zip(streams, blocks, memories, strict=True):
                stream.copy_h2d(memory.ptr, block.ptr, 100)
                stream.copy_d2h(block.ptr, memory.ptr, 100)
        events = [rig.event() for _ in streams]
        for stream, event in zip(streams, events, strict=True):
            stream.record(event)
        for seed, (block, event) in enumerate(zip(blocks, events, strict=True)):
            rig.wait(event)
            assert np.array_equal(array(block), random_bytes(100, seed))

    def test_a_part_of_device_memory_can_be_copied_within_the_device(self, rig: Rig) -> None:
        """In stream order, and no byte beside it; nothing for no bytes, wherever they are."""
        source, back = rig.host(300), rig.host(300)
        first, second = rig.memory(300), rig.memory(300)
        stream = rig.stream()
        array(source)[:] = random_bytes(300)
        stream.copy_h2d(first.ptr, source.ptr, 300)
        stream.copy_h2d(second.ptr, source.ptr, 300)
        stream.clear(second.ptr, 300)
        stream.copy_d2d(type(second.ptr)(second.ptr + 50), type(first.ptr)(first.ptr + 100), 99)
        stream.copy_d2d(second.ptr, type(first.ptr)(0), 0)
        stream.copy_d2h(back.ptr, second.ptr, 300)
        stream.synchronize()
        expected = np.zeros(300, np.uint8)
        expected[50:149] = random_bytes(300)[100:199]
        assert np.array_equal(array(back), expected)

    @pytest.mark.parametrize("size_bytes", [0, 63, 65, 1 << 20])
    def test_what_is_no_handle_opens_nothing(self, rig: Rig, size_bytes: int) -> None:
        """And harms nothing."""
        with pytest.raises(DeviceError) as caught:
            rig.device.open_shared(bytes(size_bytes))
        assert not caught.value.sticky
        rig.device.check()
        assert rig.memory(1000).ptr

    def test_a_part_of_device_memory_can_be_cleared(self, rig: Rig) -> None:
        """It becomes zeros in stream order, and none of the bytes beside it does."""
        source, back, memory = rig.host(300), rig.host(300), rig.memory(300)
        stream = rig.stream()
        array(source)[:] = 7
        stream.copy_h2d(memory.ptr, source.ptr, 300)
        stream.clear(type(memory.ptr)(memory.ptr + 100), 99)
        stream.copy_h2d(type(memory.ptr)(memory.ptr + 150), source.ptr, 1)
        stream.clear(type(memory.ptr)(0), 0)
        stream.copy_d2h(back.ptr, memory.ptr, 300)
        stream.synchronize()
        expected = [7] * 100 + [0] * 50 + [7] + [0] * 48 + [7] * 101
        assert array(back).tolist() == expected

    def test_nothing_is_copied_for_no_bytes(self, rig: Rig) -> None:
        """A copy of 0 bytes may name any address, and does nothing."""
        memory, back = rig.memory(8), rig.host(8)
        stream, event = rig.stream(), rig.event()
        array(back)[:] = 7
        stream.copy_h2d(type(memory.ptr)(0), type(back.ptr)(0), 0)
        stream.copy_d2h(back.ptr, memory.ptr, 0)
        stream.record(event)
        rig.wait(event)
        assert array(back).tolist() == [7] * 8

    def test_an_event_never_recorded_raises(self, rig: Rig) -> None:
        """Nobody is told that work is done which was never enqueued."""
        event = rig.event()
        with pytest.raises(DeviceError, match="never recorded"):
            event.is_done()

    def test_an_empty_stream_is_done_at_once(self, rig: Rig) -> None:
        """An event recorded on an idle stream becomes done."""
        stream, event = rig.stream(), rig.event()
        stream.record(event)
        rig.wait(event)
        assert event.is_done() is True
        assert event.is_done() is True

    def test_a_failed_launch_is_told_and_the_stream_goes_on(self, rig: Rig) -> None:
        """The error is raised by the next event at the latest, and by no event after it."""
        block, memory = rig.host(16), rig.memory(16)
        stream, failed, sound = rig.stream(), rig.event(), rig.event()
        with pytest.raises(EngineError, match="refused"):
            launch_and_wait(rig, stream)
        stream.record(failed)
        array(block)[:] = random_bytes(16)
        stream.copy_h2d(memory.ptr, block.ptr, 16)
        stream.copy_d2h(block.ptr, memory.ptr, 16)
        stream.record(sound)
        rig.wait(sound)
        assert failed.is_done()
        assert np.array_equal(array(block), random_bytes(16))
        rig.device.check()

    def test_a_failed_launch_leaves_other_streams_alone(self, rig: Rig) -> None:
        """Only the stream of the failed launch tells of it."""
        broken, sound, event = rig.stream(), rig.stream(), rig.event()
        with pytest.raises(EngineError):
            launch_and_wait(rig, broken)
        sound.launch(lambda: None)
        sound.record(event)
        rig.wait(event)

    def test_buffers_are_aligned_and_apart(self, rig: Rig) -> None:
        """Every buffer, of 0 bytes too, starts at a multiple of the alignment and at no other's."""
        sizes = [0, 1, 511, 512, 513, 100_000]
        hosts = [rig.host(size) for size in sizes]
        memories = [rig.memory(size) for size in sizes]
        ptrs = [buffer.ptr for buffer in hosts] + [memory.ptr for memory in memories]
        assert all(ptr > 0 and ptr % ALIGNMENT_BYTES == 0 for ptr in ptrs)
        assert len(set(ptrs)) == len(ptrs)
        assert [buffer.size_bytes for buffer in hosts] == sizes
        assert [memory.size_bytes for memory in memories] == sizes

    def test_a_host_buffer_has_a_view(self, rig: Rig) -> None:
        """The view is plain writable bytes, as many as were asked for."""
        view = rig.host(1000).view
        assert (view.nbytes, view.format, view.ndim, view.readonly) == (1000, "B", 1, False)
        view[:3] = b"abc"
        assert bytes(view[:3]) == b"abc"

    def test_memory_of_others_is_copied_once_it_is_pinned(self, rig: Rig) -> None:
        """A mapping that nobody here allocated; it is left as it is."""
        mapping = mmap.mmap(-1, 3 * mmap.PAGESIZE)
        mapping[:5000] = random_bytes(5000).tobytes()
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        pinned = rig.device.pin_host(address, 3 * mmap.PAGESIZE)
        memory, stream = rig.memory(5000), rig.stream()
        stream.copy_h2d(memory.ptr, pinned.ptr, 5000)
        stream.copy_d2h(HostPtr(pinned.ptr + 6000), memory.ptr, 5000)
        stream.synchronize()
        pinned.close()
        pinned.close()
        assert mapping[6000:11_000] == mapping[:5000] == random_bytes(5000).tobytes()

    def test_memory_that_is_not_there_is_refused(self, rig: Rig) -> None:
        """An impossible size is an error that names it, and the next allocation goes well."""
        with pytest.raises(DeviceError, match=str(2**50)) as caught:
            rig.device.alloc_device(2**50)
        assert not caught.value.sticky
        with pytest.raises(DeviceError, match=str(2**50)):
            rig.device.alloc_host(2**50)
        assert rig.memory(1000).ptr
        assert rig.host(1000).ptr
        rig.device.check()

    def test_memory_info(self, rig: Rig) -> None:
        """Free memory is part of all memory."""
        free_bytes, total_bytes = rig.device.memory_info()
        assert 0 < free_bytes <= total_bytes

    def test_closing_twice_is_silent(self, rig: Rig) -> None:
        """Every close may be called again."""
        device = rig.device
        for thing in (
            rig.stream(),
            device.open_event(),
            device.alloc_host(10),
            device.alloc_device(10),
        ):
            thing.close()
            thing.close()

    def test_closing_a_stream_finishes_its_work(self, rig: Rig) -> None:
        """What was enqueued before the close has happened after it."""
        block, back, memory = rig.host(1000), rig.host(1000), rig.memory(1000)
        stream, event = rig.stream(), rig.event()
        array(block)[:] = random_bytes(1000)
        stream.copy_h2d(memory.ptr, block.ptr, 1000)
        stream.copy_d2h(back.ptr, memory.ptr, 1000)
        stream.record(event)
        stream.close()
        assert event.is_done()
        assert np.array_equal(array(back), random_bytes(1000))

    def test_use_after_close_is_a_bug(self, rig: Rig) -> None:
        """A closed stream and a closed event raise at once, and not as a device's error."""
        stream, event, open_stream = rig.stream(), rig.event(), rig.stream()
        stream.record(event)
        stream.close()
        with pytest.raises(AssertionError, match="after its close"):
            stream.record(event)
        with pytest.raises(AssertionError, match="after its close"):
            stream.launch(lambda: None)
        event.close()
        with pytest.raises(AssertionError, match="after its close"):
            event.is_done()
        with pytest.raises(AssertionError, match="after its close"):
            open_stream.record(event)

    def test_timed_events(self, rig: Rig) -> None:
        """Two timed events give a duration; an untimed or unrecorded one is refused."""
        stream, untimed = rig.stream(), rig.event()
        start, end = rig.event(is_timed=True), rig.event(is_timed=True)
        stream.record(start)
        rig.wait(start)
        with pytest.raises(DeviceError, match="never recorded"):
            rig.device.elapsed_s(start, end)
        stream.record(end)
        stream.record(untimed)
        stream.synchronize()
        assert 0.0 <= rig.device.elapsed_s(start, end) < 15.0
        with pytest.raises(DeviceError, match="is_timed"):
            rig.device.elapsed_s(start, untimed)

    def test_streams_have_handles_of_their_own(self, rig: Rig) -> None:
        """No handle is 0, which CUDA takes for the default stream, and no two are equal."""
        handles = [rig.stream().handle for _ in range(4)]
        assert 0 not in handles
        assert len(set(handles)) == 4

    def test_any_priority_is_taken(self, rig: Rig) -> None:
        """A priority outside the range is clamped, not refused."""
        for priority in (-1000, 0, 1000):
            stream, event = rig.keep(rig.device.open_stream(priority=priority)), rig.event()
            stream.record(event)
            rig.wait(event)

    def test_another_thread_can_enqueue(self, rig: Rig) -> None:
        """After bind_thread, a thread other than the one that opened the device can use it."""
        block, back, memory = rig.host(100), rig.host(100), rig.memory(100)
        stream, event = rig.stream(), rig.event()
        array(block)[:] = random_bytes(100)

        def enqueue() -> None:
            rig.device.bind_thread()
            stream.copy_h2d(memory.ptr, block.ptr, 100)
            stream.copy_d2h(back.ptr, memory.ptr, 100)
            stream.record(event)

        thread = threading.Thread(target=enqueue)
        thread.start()
        thread.join()
        rig.wait(event)
        assert np.array_equal(array(back), random_bytes(100))

    def test_a_sound_device_passes_its_check(self, rig: Rig) -> None:
        """check() is silent while the device can work."""
        rig.device.check()


class AsyncContract(DeviceContract):
    """Devices on which work is done later than it is enqueued."""

    def test_not_done_is_seen(self, rig: Rig) -> None:
        """An event behind held work is not done, however often it is asked, until it is let go."""
        stream, event = rig.stream(), rig.event()
        let_go = rig.hold(stream)
        stream.record(event)
        assert [event.is_done() for _ in range(100)] == [False] * 100
        let_go()
        rig.wait(event)

    def test_a_held_stream_holds_no_other(self, rig: Rig) -> None:
        """Streams are independent."""
        held, free = rig.stream(), rig.stream()
        held_event, free_event = rig.event(), rig.event()
        let_go = rig.hold(held)
        held.record(held_event)
        free.record(free_event)
        rig.wait(free_event)
        assert not held_event.is_done()
        let_go()
        rig.wait(held_event)

    def test_an_event_waits_for_its_last_recording(self, rig: Rig) -> None:
        """An event that was done is not done any more once it is recorded behind new work."""
        stream, event = rig.stream(), rig.event()
        stream.record(event)
        rig.wait(event)
        let_go = rig.hold(stream)
        stream.record(event)
        assert not event.is_done()
        let_go()
        rig.wait(event)

    def test_enqueueing_does_not_wait(self, rig: Rig) -> None:
        """Copies, launches and recordings return while the stream is held."""
        block, memory = rig.host(1000), rig.memory(1000)
        stream = rig.stream()
        events = [rig.event() for _ in range(50)]
        let_go = rig.hold(stream)
        for event in events:
            stream.copy_h2d(memory.ptr, block.ptr, 1000)
            stream.launch(lambda: None)
            stream.record(event)
        assert not any(event.is_done() for event in events)
        let_go()
        stream.synchronize()
        assert all(event.is_done() for event in events)

    def test_a_copy_behind_held_work_has_not_happened(self, rig: Rig) -> None:
        """The destination keeps its bytes until the stream gets there."""
        block, back, memory = rig.host(100), rig.host(100), rig.memory(100)
        stream, event = rig.stream(), rig.event()
        array(block)[:] = random_bytes(100)
        array(back)[:] = 7
        stream.copy_h2d(memory.ptr, block.ptr, 100)
        let_go = rig.hold(stream)
        stream.copy_d2h(back.ptr, memory.ptr, 100)
        stream.record(event)
        assert not event.is_done()
        assert array(back).tolist() == [7] * 100
        let_go()
        rig.wait(event)
        assert np.array_equal(array(back), random_bytes(100))

    def test_a_clearing_behind_held_work_has_not_happened(self, rig: Rig) -> None:
        """The bytes stay as they are until the stream gets there."""
        block, back, memory = rig.host(100), rig.host(100), rig.memory(100)
        held, other = rig.stream(), rig.stream()
        array(block)[:] = 7
        held.copy_h2d(memory.ptr, block.ptr, 100)
        held.synchronize()
        let_go = rig.hold(held)
        held.clear(memory.ptr, 100)
        other.copy_d2h(back.ptr, memory.ptr, 100)
        other.synchronize()
        assert array(back).tolist() == [7] * 100
        let_go()
        held.copy_d2h(back.ptr, memory.ptr, 100)
        held.synchronize()
        assert array(back).tolist() == [0] * 100

    def test_timing_refuses_what_is_not_done(self, rig: Rig) -> None:
        """A duration is not invented for work in flight."""
        stream = rig.stream()
        start, end = rig.event(is_timed=True), rig.event(is_timed=True)
        stream.record(start)
        let_go = rig.hold(stream)
        stream.record(end)
        rig.wait(start)
        with pytest.raises(DeviceError, match="before it is done"):
            rig.device.elapsed_s(start, end)
        let_go()
        rig.wait(end)
        assert rig.device.elapsed_s(start, end) > 0.0


class ProgressContract:
    """Devices that say when it is worth asking an event."""

    def test_progress_is_told_after_the_event_is_done(self, rig: Rig) -> None:
        """on_progress is called for every event, and whoever asks from inside it is answered."""
        stream, events = rig.stream(), [rig.event() for _ in range(20)]
        seen: list[int] = []
        rig.device.on_progress = lambda: seen.append(sum(event.is_done() for event in events))
        let_go = rig.hold(stream)
        for event in events:
            stream.record(event)
        assert seen == []
        let_go()
        stream.synchronize()
        rig.device.on_progress = None
        assert seen == list(range(1, 21))

    def test_progress_need_not_be_listened_to(self, rig: Rig) -> None:
        """None is no listener."""
        stream, event = rig.stream(), rig.event()
        rig.device.on_progress = None
        stream.record(event)
        rig.wait(event)

    def test_a_failure_is_progress(self, rig: Rig) -> None:
        """on_progress is called for an event that will raise, too."""
        stream, event = rig.stream(), rig.event()
        told = threading.Event()
        rig.device.on_progress = told.set
        stream.launch(refuse)
        stream.record(event)
        stream.synchronize()
        assert told.is_set()
        with pytest.raises(EngineError):
            event.is_done()
        rig.device.on_progress = None


def launch_and_wait(rig: Rig, stream: Stream) -> None:
    """Launch what fails, and look for the error wherever the contract allows it to be raised."""
    event = rig.event()
    stream.launch(refuse)
    stream.record(event)
    rig.wait(event)
