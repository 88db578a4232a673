"""Staging blocks: pinned host memory that belongs to one request from admission to reply.

Rules
- A block has one holder at a time: `lease` hands it out, `release` takes it back, once.
- Whoever holds a block releases it only when the device is done with it (the event says so).
- The memory of all blocks together never exceeds the budget; when nothing fits, `lease` says None
  and the caller waits or refuses. Free blocks of other sizes are given up to make room.
- Called from one thread at a time (the one that steps the core).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.device.base import Device, HostBuffer, HostPtr
from headrace.engines.base import Binding, Layout, Shape

MIN_BLOCK_BYTES = 4096  # one page: smaller blocks save nothing, since memory is mapped in pages
STEPS_PER_OCTAVE = 4  # sizes 1, 1.25, 1.5, 1.75 × 2^n: at most 25 % of a block is slack
MAX_BINDINGS = 8  # per block; more layouts than this alternate rarely on one block


class Parts(NamedTuple):
    """The tensors of one layout in a block, in the engine's order."""

    inputs: tuple[memoryview, ...]
    outputs: list[tuple[Shape, memoryview]]


@dataclass(slots=True, eq=False)
class Block:
    """One staging block; `bindings` keeps what engines prepared for its address.

    Only unified devices use them: there every context of an engine can run every binding of it.
    """

    buffer: HostBuffer
    ptr: HostPtr
    view: memoryview  # (size_bytes,) uint8, pinned where there is a GPU
    size_bytes: int
    is_leased: bool = False
    bindings: dict[Layout, Binding] = field(default_factory=dict)
    _parts: dict[Layout, Parts] = field(default_factory=dict)

    def parts(self, layout: Layout) -> Parts:
        """Return where the tensors of a call lie; its output shapes must be known."""
        parts = self._parts.get(layout)
        if parts is None:
            if len(self._parts) >= MAX_BINDINGS:
                self._parts.clear()
            parts = self._parts[layout] = _parts(layout, self.view)
        return parts

    def forget(self) -> None:
        """Drop all that was kept for this memory, which goes."""
        self.bindings.clear()
        self._parts.clear()

    def keep_binding(self, layout: Layout, binding: Binding) -> None:
        """Remember what was prepared for this layout here; old entries go when there are many."""
        if len(self.bindings) >= MAX_BINDINGS:
            self.bindings.clear()
        self.bindings[layout] = binding


def size_class(size_bytes: int) -> int:
    """Return the block size that serves `size_bytes`: four steps an octave from one page up."""
    if size_bytes <= MIN_BLOCK_BYTES:
        return MIN_BLOCK_BYTES
    octave = 1 << ((size_bytes - 1).bit_length() - 1)  # the largest power of two below size_bytes
    step = octave // STEPS_PER_OCTAVE
    return -(-size_bytes // step) * step


class BlockPool:
    """All staging blocks of one device, by size class, under one budget."""

    def __init__(self, device: Device, budget_bytes: int) -> None:
        self._device = device
        self._budget_bytes = budget_bytes
        self._free: dict[int, list[Block]] = {}
        self.allocated_bytes = 0
        self._is_closed = False
        self.num_leased = 0
        self.leased_bytes = 0

    @property
    def budget_bytes(self) -> int:
        """How much memory all blocks together may take."""
        return self._budget_bytes

    def fits(self, size_bytes: int, count: int = 1) -> bool:
        """Say whether so many blocks of this size could ever be leased at a time."""
        return size_class(size_bytes) * count <= self._budget_bytes

    def could_lease(self, size_bytes: int, given_bytes: int) -> bool:
        """Say whether `lease` would find a block, were one of `given_bytes` given back before."""
        size = size_class(size_bytes)
        if size == given_bytes or self._free.get(size):
            return not self._is_closed
        free_bytes = sum(each * len(free) for each, free in self._free.items())
        kept_bytes = self.allocated_bytes - free_bytes - given_bytes
        return not self._is_closed and kept_bytes + size <= self._budget_bytes

    def lease(self, size_bytes: int) -> Block | None:
        """Hand out a block of at least `size_bytes`, None when the budget is spent.

        Raises:
            DeviceError: The device refused the memory although the budget allowed it.
        """
        size = MIN_BLOCK_BYTES if size_bytes <= MIN_BLOCK_BYTES else size_class(size_bytes)
        free = self._free.get(size)
        block = free.pop() if free else self._allocate(size)
        if block is not None:
            block.is_leased = True
            self.num_leased += 1
            self.leased_bytes += size
        return block

    def release(self, block: Block) -> None:
        """Take a block back; the device must be done with it."""
        assert block.is_leased, "a block was released twice"
        block.is_leased = False
        self.num_leased -= 1
        self.leased_bytes -= block.size_bytes
        if self._is_closed:
            self._drop(block)
            return
        self._free.setdefault(block.size_bytes, []).append(block)

    def forfeit(self, block: Block) -> None:
        """Give a leased block up for good: a failed device may write into it at any time.

        It counts as leased from now on, and the budget is less by its size.
        """
        assert block.is_leased, "a block that is not leased was given up"
        self._budget_bytes -= block.size_bytes
        self.allocated_bytes -= block.size_bytes

    def reserve(self, size_bytes: int, count: int) -> None:
        """Have up to `count` free blocks ahead, so that requests do not pay for pinning."""
        size = size_class(size_bytes)
        free = self._free.setdefault(size, [])
        while len(free) < count and self.allocated_bytes + size <= self._budget_bytes:
            free.append(self._new(size))

    def adopt(self, other: BlockPool) -> None:
        """Take over free blocks of another pool of this device, to have as many of each size.

        What is not needed or does not fit stays there. Never slow: nothing is allocated or freed.
        """
        for size, theirs in other._free.items():
            ours, wanted = self._free.setdefault(size, []), len(theirs)
            while len(ours) < wanted and self.allocated_bytes + size <= self._budget_bytes:
                other.allocated_bytes -= size
                self.allocated_bytes += size
                ours.append(theirs.pop())

    def trim(self, size_bytes: int, keep: int) -> None:
        """Give up free blocks for requests of this size, but for so many."""
        free = self._free.get(size_class(size_bytes), [])
        while len(free) > keep:
            self._drop(free.pop())

    def close(self) -> None:
        """Free every block that is not leased; leased ones go when they are released."""
        self._is_closed = True
        for free in self._free.values():
            while free:
                self._drop(free.pop())

    def _allocate(self, size: int) -> Block | None:
        if self._is_closed:
            return None
        if self.allocated_bytes + size > self._budget_bytes and not self._make_room(size):
            return None
        return self._new(size)

    def _new(self, size: int) -> Block:
        buffer = self._device.alloc_host(size)
        self.allocated_bytes += size
        return Block(buffer=buffer, ptr=buffer.ptr, view=buffer.view, size_bytes=size)

    def _make_room(self, size: int) -> bool:
        """Give up free blocks, largest first, until `size` fits into the budget."""
        for other in sorted(self._free, reverse=True):
            free = self._free[other]
            while free and self.allocated_bytes + size > self._budget_bytes:
                self._drop(free.pop())
        return self.allocated_bytes + size <= self._budget_bytes

    def _drop(self, block: Block) -> None:
        self.allocated_bytes -= block.size_bytes
        block.forget()
        block.buffer.close()


def _parts(layout: Layout, view: memoryview) -> Parts:
    assert layout.output_shapes is not None
    inputs = zip(layout.input_offsets, layout.input_sizes, strict=True)
    outputs = zip(layout.output_shapes, layout.output_offsets, layout.output_sizes, strict=True)
    return Parts(
        tuple(view[offset : offset + size] for offset, size in inputs),
        [(shape, view[offset : offset + size]) for shape, offset, size in outputs],
    )
