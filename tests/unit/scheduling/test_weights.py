"""Sources of a model may have shares of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from headrace.engines.batching_spec import BatchingSpec
from helpers.queue_rig import Queue, known

WEIGHTS: Mapping[str | None, float] = MappingProxyType({"gate": 3.0, "archive": 0.5})
SPEC = BatchingSpec(max_rows=1, source_weights=WEIGHTS)


@pytest.mark.parametrize("rows", [1, 4])
def test_who_waits_is_served_by_its_weight(rows: int) -> None:
    """Of 90 rows: 60 of the gate, 20 of a source that has no weight, 10 of the archive."""
    queue = Queue(BatchingSpec(max_rows=rows, source_weights=WEIGHTS))
    for _ in range(90):
        for source in ("archive", "other", "gate"):
            queue.add(source=source)
    while len(queue.ran) < 90:
        queue.next()
    served = Counter(request.source for request in queue.ran[:90])
    assert abs(served["gate"] - 60) <= 3
    assert abs(served["other"] - 20) <= 2
    assert abs(served["archive"] - 10) <= 1


def test_a_full_queue_takes_from_who_has_most_for_its_weight() -> None:
    """Six of weight 3 are less than three of weight 1."""
    queue = Queue(SPEC, max_queue_size=9)
    for _ in range(6):
        queue.add(source="gate")
    others = [queue.add(source="other") for _ in range(3)]
    newcomer = queue.request(source="third")
    drop = queue.batcher.displace(newcomer)
    assert drop is not None
    assert drop.request is others[-1]


def test_a_source_of_weight_is_not_refused_for_those_it_goes_before() -> None:
    """Nine others wait and so many rows are too many in time; of weight 3 it goes as the fourth."""
    refusals = {}
    for source in ("gate", "tenth"):
        queue = Queue(SPEC, known([(1, 0.010)]))
        for number in range(9):
            for _ in range(3):
                queue.add(source=f"camera {number}")
        queue.add(source=source, deadline_s=1.0)
        refusals[source] = queue.refuse(source=source, deadline_s=0.080)
    assert refusals == {"gate": None, "tenth": "hopeless"}
