"""What a model that keeps state between requests wants, out of its configuration: pure.

Some of its inputs and outputs are no client's business: controls say where in its sequence a
request stands, and what a state's output was is its input in the sequence's next request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from headrace.engines.base import Shape
from headrace.engines.layout import num_elements
from headrace.errors import RequestError
from headrace_proto.datatypes import DATATYPES

Fact = Literal["start", "ready", "end", "id"]
SequenceId = int | str
T = TypeVar("T")

SIGNED = frozenset({"INT32", "INT64"})


@dataclass(frozen=True, slots=True)
class Control:
    """An input of one element a row that tells the model something of a request.

    Attributes:
        index: Its place among the engine's inputs.
        false: The element's bytes where the fact does not hold; an id has none.
        true: Where it does.
    """

    index: int
    name: str
    fact: Fact
    datatype: str
    false: bytes = b""
    true: bytes = b""

    @property
    def shape(self) -> Shape:
        """Of one row."""
        return (1,)

    def encoded(self, sequence_id: SequenceId) -> bytes:
        """Return the element of a control that tells the id.

        Raises:
            RequestError: The model takes no such id.
        """
        size, is_signed = DATATYPES[self.datatype].itemsize_bytes, self.datatype in SIGNED
        if isinstance(sequence_id, str):
            raise RequestError(
                f"the correlation ID is a string, but the model's input '{self.name}' takes it as "
                f"{self.datatype}: send a number"
            )
        if self.datatype == "UINT64":
            sequence_id %= 1 << 64  # the protocol carries such ids as int64
        try:
            return sequence_id.to_bytes(size, "little", signed=is_signed)
        except OverflowError:
            raise RequestError(
                f"the correlation ID is {sequence_id}, but the model's input '{self.name}' takes "
                f"it as {self.datatype}"
            ) from None


@dataclass(frozen=True, slots=True)
class State:
    """What a sequence carries from one request to the next.

    Attributes:
        index: The place of its input among the engine's.
        output_index: The place of its output.
        shape: Of one row; it never changes.
        initial: The bytes that a sequence starts with, C order.
    """

    index: int
    output_index: int
    name: str
    datatype: str
    shape: Shape
    initial: bytes


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """How one model serves sequences.

    Attributes:
        idle_s: A sequence that nothing is asked of for so long ends.
        max_candidates: Sequences at a time for each slot; 0 where the configuration does not say.
        has_rows: The first dimension of every tensor is the batch.
        least_rows: When so many wait, all of them run; fewer wait for more. 0 for any number.
        controls: In any order.
        states: In the configuration's order.
    """

    idle_s: float
    max_candidates: int
    has_rows: bool
    least_rows: int
    controls: tuple[Control, ...]
    states: tuple[State, ...]

    @property
    def state_bytes(self) -> int:
        """How much one sequence carries."""
        return sum(len(state.initial) for state in self.states)

    def shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Put the hidden inputs' shapes among those of a call, both the engine's."""
        head = self._head(shapes)
        return tuple(_merged(shapes, [(each.index, (*head, *each.shape)) for each in self._hidden]))

    def sizes(self, shapes: Sequence[Shape], sizes: Sequence[int]) -> tuple[int, ...]:
        """Put the hidden inputs' bytes among those of a call of these shapes."""
        rows = num_elements(self._head(shapes))
        hidden = [
            (each.index, rows * num_elements(each.shape) * DATATYPES[each.datatype].itemsize_bytes)
            for each in self._hidden
        ]
        return tuple(_merged(sizes, hidden))

    def trial(self, tensors: Sequence[bytes], rows: int) -> list[bytes]:
        """Complete the inputs of a trial run as those of sequences of one request each."""
        hidden = dict(self.values(1, is_start=True, is_end=True))
        hidden |= {state.index: state.initial for state in self.states}
        return _merged(tensors, [(index, hidden[index] * rows) for index in sorted(hidden)])

    def values(
        self, sequence_id: SequenceId, *, is_start: bool, is_end: bool
    ) -> tuple[tuple[int, bytes], ...]:
        """Return the hidden inputs of a request of one row by rising place; states are left empty.

        Raises:
            RequestError: The model takes no such id.
        """
        facts: dict[Fact, bool] = {"start": is_start, "ready": True, "end": is_end}
        values = {state.index: b"" for state in self.states}
        for control in self.controls:
            values[control.index] = (
                control.encoded(sequence_id)
                if control.fact == "id"
                else (control.true if facts[control.fact] else control.false)
            )
        return tuple(sorted(values.items()))

    @property
    def _hidden(self) -> list[Control | State]:
        return sorted((*self.controls, *self.states), key=lambda each: each.index)

    def _head(self, shapes: Sequence[Shape]) -> Shape:
        """Return the batch dimension of a call, where there is one."""
        if not self.has_rows:
            return ()
        return shapes[0][:1] if shapes else (1,)


def _merged(values: Sequence[T], hidden: Sequence[tuple[int, T]]) -> list[T]:
    """Put what is hidden, by rising place, where it stands among all inputs of the engine."""
    merged = list(values)
    for index, value in hidden:
        merged.insert(index, value)
    return merged
