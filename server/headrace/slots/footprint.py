"""What one model takes of the device's memory, and of pinned memory, by kind.

Weights and contexts are as the engine tells; what a library keeps beside that is not in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.engines.base import MeasuredContext
from headrace.slots.pool import SlotPool


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """The memory of one served model on a device with memory of its own.

    Attributes:
        pool: Its slots.
        weights_bytes: Device memory that all contexts share; 0 when the engine cannot tell.
        blocks_bytes: Pinned host memory allocated ahead for it; other models may use it, too.
    """

    pool: SlotPool
    weights_bytes: int
    blocks_bytes: int

    @property
    def contexts_bytes(self) -> int:
        """Device memory of the execution contexts: activations; 0 when they cannot tell."""
        contexts = (slot.context for slot in self.pool.slots)
        return sum(each.memory_bytes for each in contexts if isinstance(each, MeasuredContext))

    @property
    def io_bytes(self) -> int:
        """Device memory of the lanes, for inputs and outputs; it grows with what clients send."""
        lanes = (lane for slot in self.pool.slots for lane in slot.lanes)
        return sum(lane.memory.size_bytes for lane in lanes if lane.memory is not None)

    @property
    def gather_bytes(self) -> int:
        """Pinned host memory of the lanes, where small requests of a batch are put together."""
        lanes = (lane for slot in self.pool.slots for lane in slot.lanes)
        return sum(lane.inputs.size_bytes + lane.outputs.size_bytes for lane in lanes)

    def by_kind(self) -> Mapping[str, Callable[[], int]]:
        """Return what tells the bytes of each kind that is known, at any time."""
        told: dict[str, Callable[[], int]] = {
            "io": lambda: self.io_bytes,
            "blocks": lambda: self.blocks_bytes,
            "gather": lambda: self.gather_bytes,
        }
        if self.weights_bytes:
            told["weights"] = lambda: self.weights_bytes
        if self.contexts_bytes:
            told["contexts"] = lambda: self.contexts_bytes
        return told

    def __str__(self) -> str:
        weights = f"{self.weights_bytes} bytes" if self.weights_bytes else "unknown"
        contexts = f"{self.contexts_bytes} bytes" if self.contexts_bytes else "unknown"
        return (
            f"weights {weights}, {len(self.pool.slots)} contexts {contexts}, inputs and outputs "
            f"{self.io_bytes} bytes, staging blocks {self.blocks_bytes} bytes and lanes "
            f"{self.gather_bytes} bytes of pinned memory"
        )
