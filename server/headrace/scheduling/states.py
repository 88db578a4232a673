"""Moves the states of sequences: into a request's block when its turn comes, out when it has run.

Rules
- A state lies in memory of its own between two requests: what holds it is never a block, which
  other requests get afterwards.
- The whole of every state's input is written for every request, whatever lay in its block.
"""

from __future__ import annotations

from collections.abc import Sequence as Several

from headrace.engines.sequence_spec import SequenceSpec
from headrace.errors import EngineError
from headrace.scheduling.request import Request
from headrace.scheduling.sequence import Carried
from headrace.slots.batch import Output


class States:
    """The states of one model."""

    def __init__(self, spec: SequenceSpec) -> None:
        self._states = spec.states
        self._initial = tuple(state.initial for state in spec.states)
        head = (1,) if spec.has_rows else ()
        self._shapes = [(*head, *state.shape) for state in spec.states]

    def put(self, request: Request, carried: Carried | None) -> None:
        """Write what a request runs on; None for what a sequence starts with."""
        block, offsets = request.block, request.layout.input_offsets
        assert block is not None
        for state, data in zip(self._states, carried or self._initial, strict=True):
            at = offsets[state.index]
            block.view[at : at + len(data)] = data

    def take(self, outputs: Several[Output]) -> Carried:
        """Return a copy of what a request left.

        Raises:
            EngineError: A state came out in another shape than it went in.
        """
        carried = []
        for state, wanted in zip(self._states, self._shapes, strict=True):
            shape, data = outputs[state.output_index]
            if tuple(shape) != wanted:
                raise EngineError(
                    f"the state of '{state.name}' came out with shape {list(shape)}, but it went "
                    f"in with {list(wanted)}: states must keep their shape"
                )
            carried.append(bytes(data))
        return tuple(carried)
