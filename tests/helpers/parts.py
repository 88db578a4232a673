"""Parts of sequences for a model that the real loader has loaded, submitted to its scheduler."""

from __future__ import annotations

import time

from headrace.scheduling.request import Request
from headrace.scheduling.sequence import Part
from helpers.core_served import Array, Asked, CoreServed


def submit_part(
    rig: CoreServed, x: Array, sequence_id: int, *, is_start: bool = False, is_end: bool = False
) -> Asked:
    """Submit a request of one row, as the front door would."""
    spec = rig.model.spec
    assert spec.sequence is not None
    values = spec.sequence.values(sequence_id, is_start=is_start, is_end=is_end)
    tensors = [x.tobytes()]
    for index, value in values:
        tensors.insert(index, value)
    now = time.monotonic()
    request = Request(
        rig.model.line,
        rig.model.plan([x.shape], [x.nbytes]),
        tensors,
        rows=1,
        deadline=None,
        received_at=now,
        parsed_at=now,
        on_end=rig._on_end,
    )
    request.part = Part(sequence_id, is_start, is_end)
    rig.asked.append(Asked((x,), request))
    rig.scheduler.submit(request, now)
    return rig.asked[-1]
