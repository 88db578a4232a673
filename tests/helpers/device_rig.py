"""A device under test: opens what a test asks for, holds a stream, waits for an event, closes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.device.base import Device, DeviceBuffer, Event, HostBuffer, Stream
from headrace.device.host import HostDevice
from headrace.device.sim import SimDevice
from headrace.device.sim_stream import SimEvent

LIMIT_S = 15.0  # of any wait; a test that gets there has failed


class Closable(Protocol):
    """What the rig closes."""

    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


class Rig:
    """One device, and everything a test opens on it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.opened.close()
        self.device.close()

    def keep(self, thing: Opened) -> Opened:
        """Close it after the test."""
        self.opened.callback(thing.close)
        return thing

    def stream(self) -> Stream:
        return self.keep(self.device.open_stream())

    def event(self, *, is_timed: bool = False) -> Event:
        return self.keep(self.device.open_event(is_timed=is_timed))

    def host(self, size_bytes: int) -> HostBuffer:
        return self.keep(self.device.alloc_host(size_bytes))

    def memory(self, size_bytes: int) -> DeviceBuffer:
        return self.keep(self.device.alloc_device(size_bytes))

    def hold(self, stream: Stream) -> Callable[[], None]:
        """Keep everything enqueued from now on from being done; return what lets it go."""
        raise NotImplementedError

    def wait(self, event: Event) -> None:
        """Wait until the event is done, by asking it and nothing else."""
        deadline = time.monotonic() + LIMIT_S
        while not event.is_done():
            assert time.monotonic() < deadline, f"not done after {LIMIT_S} s"


class HostRig(Rig):
    """Held by a launch that waits for the test."""

    def __init__(self) -> None:
        super().__init__(HostDevice())

    def hold(self, stream: Stream) -> Callable[[], None]:
        let_go = threading.Event()
        self.opened.callback(let_go.set)
        stream.launch(lambda: _wait(let_go))
        return let_go.set


class InlineRig(Rig):
    """Nothing can be held: it is done when the call returns."""

    def __init__(self) -> None:
        self.host_device = HostDevice()
        super().__init__(self.host_device)

    def stream(self) -> Stream:
        return self.keep(self.host_device.open_inline_stream())


class SimRig(Rig):
    """Held by a launch that takes an hour of the virtual time."""

    def __init__(self, *, is_unified: bool = False) -> None:
        self.sim = SimDevice(is_unified=is_unified)
        super().__init__(self.sim)

    def hold(self, stream: Stream) -> Callable[[], None]:
        usual_s, self.sim.launch_s = self.sim.launch_s, 3600.0
        stream.launch(lambda: None)
        self.sim.launch_s = usual_s
        return lambda: self.sim.run_until(self.sim.now + 3600.0)

    def wait(self, event: Event) -> None:
        assert isinstance(event, SimEvent)
        self.sim.run_until_done(event)


def array(buffer: HostBuffer) -> NDArray[np.uint8]:
    """Return the buffer as (size_bytes,) uint8."""
    return np.frombuffer(buffer.view, np.uint8)


def _wait(let_go: threading.Event) -> None:
    assert let_go.wait(LIMIT_S)
