"""Heads that differ in their sequence alone: its id, and whether it begins or ends.

Every sequence has an id of its own, and so three heads that nobody sent before: of its first, its
middle and its last requests. All else is checked for one of them and holds for the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.rpc.parameters import check_request_parameters
from headrace.rpc.parse import parse
from headrace.rpc.sequence import in_sequence
from headrace_proto.parameters import take_parameters
from headrace_proto.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from headrace.rpc.prepare import Prepared

NAMES: Final = (b"sequence_id", b"sequence_start", b"sequence_end")
PARAMETERS: Final = frozenset(name.decode() for name in NAMES)
COMMON: Final = b"sequence_"  # to all of them, and to few heads without one
MAX_PLAIN: Final = 256  # heads without their sequence: some for each model


class SequenceHeads:
    """What is known of heads without their sequence."""

    def __init__(self) -> None:
        self._known: dict[bytes, Prepared] = {}

    def find(self, head: bytes, num_raw: int) -> Prepared | None:
        """Return what to do with a request; None when its head has to be checked.

        Raises:
            RequestError: The sequence is wrong, and all else would be right.
        """
        if COMMON not in head or not self._known:
            return None
        split = take_parameters(head, NAMES)
        known = None if split is None else self._known.get(split[0])
        if split is None or known is None or known.num_raw != num_raw:
            return None
        parameters = parse(pb.ModelInferRequest, split[1]).parameters
        if not PARAMETERS.issuperset(parameters):
            return None
        check_request_parameters(parameters)
        submit = in_sequence(parameters, known.served, known.rows, known.onward)
        return replace(known, submit=submit)

    def keep(self, head: bytes, prepared: Prepared) -> None:
        """Note what was found out about a head; one without a sequence is not looked for here."""
        split = take_parameters(head, NAMES) if COMMON in head else None
        if split is None or not split[1]:
            return
        if len(self._known) >= MAX_PLAIN:
            self._known.pop(next(iter(self._known), head), None)  # as in `Preparer`
        self._known[split[0]] = prepared

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
