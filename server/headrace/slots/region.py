"""Host memory of a lane that grows with what it must hold."""

from __future__ import annotations

from headrace.device.base import ALIGNMENT_BYTES, Device, HostBuffer, HostPtr


class HostRegion:
    """One piece of host memory: pinned where there is a GPU, empty until something must fit."""

    __slots__ = ("_buffer", "_device")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffer: HostBuffer | None = None

    @property
    def size_bytes(self) -> int:
        """How much fits."""
        return 0 if self._buffer is None else self._buffer.size_bytes

    @property
    def ptr(self) -> HostPtr:
        """Where it is, after the first `grow`."""
        assert self._buffer is not None, "there is no memory yet"
        return self._buffer.ptr

    @property
    def view(self) -> memoryview:
        """All of it, (size_bytes,) uint8, after the first `grow`."""
        assert self._buffer is not None, "there is no memory yet"
        return self._buffer.view

    def grow(self, size_bytes: int) -> bool:
        """Have room for so many bytes; what was in it is lost when it moves.

        The lane must be free: nothing may be on its way out of the region, or into it.

        Returns:
            Whether it moved.

        Raises:
            DeviceError: The memory cannot be had.
        """
        if self._buffer is not None and self._buffer.size_bytes >= size_bytes:
            return False
        self.close()
        self._buffer = self._device.alloc_host(max(size_bytes, ALIGNMENT_BYTES))
        return True

    def close(self) -> None:
        """Give the memory back; a second call does nothing."""
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None
