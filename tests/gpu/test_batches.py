"""Batches on a real GPU, with a kernel of known arithmetic: both ways in and out of its memory."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.cuda_core_rig import CudaRig

pytestmark = pytest.mark.gpu

MAX_ROWS = 400_000


@pytest.fixture(params=["cpu gathers", "a copy for each"])
def core(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, needs_gpu: None
) -> Iterator[CudaRig]:
    """Two slots on GPU 0; whatever the sizes, batches go one way."""
    from headrace.slots import gather
    from helpers.cuda_core_rig import CudaRig

    limit = 1 << 30 if request.param == "cpu gathers" else 0
    monkeypatch.setattr(gather, "GATHER_BELOW_BYTES", limit)
    core = CudaRig(num_slots=2)
    yield core
    core.run()
    assert core.blocks.num_leased == 0
    core.close()


def test_every_member_gets_its_own_rows(core: CudaRig) -> None:
    """Thousands of requests of mixed rows in batches of whatever waits: one right answer each."""
    from helpers.cuda_core_rig import plus_one

    core.use_batches(MAX_ROWS)
    rng = random.Random(11)
    payloads = {}
    for index in range(2000):
        payload = rng.randbytes(rng.choice((1, 7, 64, 5000, 60_000)))
        payloads[core.submit(payload)] = payload
        if index % 40 == 0:
            core.scheduler.step(time.monotonic())
        if index % 400 == 0:
            core.run()
    core.run()
    assert all(
        core.replies[request] == [plus_one(payload)] for request, payload in payloads.items()
    )


def test_padding_holds_nobodys_data(core: CudaRig) -> None:
    """Rows behind a batch's own, on the device, are zeros after a batch that filled them."""
    core.use_batches(64, padded_to={3: 64})
    (slot, _) = core.slots
    core.slots[1].move_to(core.slots[1].state.FAULTED)
    core.submit(bytes([9]) * 32)
    core.submit(bytes([9]) * 32)
    core.run()
    first, second = core.submit(b"ab"), core.submit(b"c")
    core.run()
    assert (core.replies[first], core.replies[second]) == ([b"bc"], [b"d"])
    lane = slot.lanes[0]
    assert lane.memory is not None
    seen = core.device.alloc_host(64)
    slot._stream.copy_d2h(seen.ptr, lane.memory.ptr, 64)
    slot.synchronize()
    assert bytes(seen.view) == b"abc" + bytes(61)
    seen.close()


def test_stages_of_a_batch_are_measured(core: CudaRig) -> None:
    """Copies and compute have times of their own, and together they are no more than the whole."""
    core.use_batches(MAX_ROWS)
    requests = [core.submit(bytes(50_000)) for _ in range(8)]
    began_at = time.monotonic()
    core.run()
    whole_s = time.monotonic() - began_at
    timings = {request.timing for request in requests}
    (timing,) = timings
    assert timing is not None
    assert min(timing.h2d_s, timing.execute_s, timing.d2h_s) > 0
    assert 0 < timing.took_s <= whole_s
