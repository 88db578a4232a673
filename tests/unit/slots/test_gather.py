"""Several requests in one run: each gets what numpy makes of its own inputs, on every device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.device.host import HostDevice
from headrace.device.sim import SimDevice
from headrace.errors import EngineError
from headrace.slots import gather
from helpers.batch_rig import WIDTHS, BatchRig, expected

ROWS = st.lists(st.integers(0, 9), min_size=2, max_size=6)


def sim(**options: Any) -> BatchRig:
    """The virtual GPU: copies take effect as late as they may."""
    device = SimDevice(**options)
    return BatchRig(device, device.open_stream())


def host() -> BatchRig:
    """The CPU with a launcher."""
    device = HostDevice()
    return BatchRig(device, device.open_stream())


def inline() -> BatchRig:
    """The CPU, on the caller's thread."""
    device = HostDevice()
    return BatchRig(device, device.open_inline_stream(), num_lanes=1, is_inline=True)


DEVICES: dict[str, Callable[[], BatchRig]] = {
    "gpu": sim,
    "unified": lambda: sim(is_unified=True),
    "host": host,
    "inline": inline,
}


@pytest.fixture(params=["cpu gathers", "a copy for each"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways into a GPU, whatever the sizes."""
    limit = gather.GATHER_BELOW_BYTES if request.param == "cpu gathers" else 0
    monkeypatch.setattr(gather, "GATHER_BELOW_BYTES", limit)


@pytest.fixture(params=list(DEVICES))
def rig(request: pytest.FixtureRequest, _way: None) -> Iterator[BatchRig]:
    """One slot on each device, and nothing left open on it."""
    rig = DEVICES[request.param]()
    yield rig
    rig.close()
    leaks = rig.device.leaks() if isinstance(rig.device, SimDevice) else []
    assert leaks == []
    rig.device.close()


@pytest.mark.parametrize("rows", [(1, 1), (1,) * 32, (3, 1, 2), (1, 0, 4), (7,)])
def test_each_request_gets_its_own_rows(rig: BatchRig, rows: tuple[int, ...]) -> None:
    """Equal and mixed rows, none at all, and one request alone."""
    batch = rig.batch(*rows)
    assert rig.run(batch) == expected(batch)
    rig.release(batch)


@settings(deadline=None, max_examples=30)
@given(st.lists(ROWS, min_size=1, max_size=8), st.sampled_from(list(DEVICES)), st.booleans())
def test_batches_of_any_rows_one_after_another(
    batches: list[list[int]], device: str, gathers: bool
) -> None:
    """The lane's memory grows, shrinks in use and is used again; every answer is right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "GATHER_BELOW_BYTES", 1 << 20 if gathers else 0)
        rig = DEVICES[device]()
        for rows in batches:
            batch = rig.batch(*rows)
            assert rig.run(batch) == expected(batch)
            rig.release(batch)
        rig.close()
        rig.device.close()


def test_answers_do_not_lead_into_the_lane(rig: BatchRig) -> None:
    """The lane is freed and enqueued again before the replies are written."""
    first, second = rig.batch(2, 1), rig.batch(1, 2)
    second.requests[0].inputs[0][:] ^= 0xFF
    lane = rig.enqueue(first)
    rig.end(lane)
    answers = [rig.slot.outputs(lane, index) for index in range(2)]
    lane.free()
    rig.run(second)
    assert [[(s, bytes(v)) for s, v in answer] for answer in answers] == expected(first)
    rig.release(first)
    rig.release(second)


@pytest.mark.parametrize("rows", [(1, 2), (3,)])
def test_rows_of_padding_are_zeros(rig: BatchRig, rows: tuple[int, ...]) -> None:
    """A batch of 3 that runs as one of 8 behind one of 8: nothing of that one is seen again.

    One request alone, too: its block is laid out for 3 rows.
    """
    rig.padded_to[3] = 8
    full = rig.batch(4, 4)
    rig.run(full)
    small = rig.batch(*rows)
    assert rig.run(small) == expected(small)
    for place, seen in enumerate(rig.context.seen[-1]):
        own = np.concatenate([request.inputs[place] for request in small.requests]).ravel()
        assert seen.size == 8 * WIDTHS[place]
        assert np.array_equal(seen[: own.size], own)
        assert not seen[own.size :].any()
    rig.release(full)
    rig.release(small)


def test_layouts_are_bound_once(rig: BatchRig) -> None:
    """Binding is slow, so a lane keeps what it prepared for each number of rows."""
    for _ in range(3):
        for rows in ((4, 4), (2, 2)):
            batch = rig.batch(*rows)
            assert rig.run(batch) == expected(batch)
            rig.release(batch)
    assert rig.context.num_bound == 2


def test_a_failed_run_fails_the_batch_and_no_other(rig: BatchRig) -> None:
    """The error comes with the lane, and the next batch on it is right."""
    batch = rig.batch(2, 1)
    rig.context.error = EngineError("refused")
    lane = rig.enqueue(batch)
    with pytest.raises(EngineError, match="refused"):
        rig.end(lane)
    lane.free()
    for rows in ((2,), (2, 1)):
        after = rig.batch(*rows)
        assert rig.run(after) == expected(after)
        rig.release(after)
    rig.release(batch)
