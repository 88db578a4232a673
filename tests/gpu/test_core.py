"""The scheduler, the slots and the poller on a real GPU, with a kernel of known arithmetic."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.errors import AbandonedError

if TYPE_CHECKING:
    from helpers.cuda_core_rig import CudaRig

pytestmark = pytest.mark.gpu


@pytest.fixture
def core(needs_gpu: None) -> Iterator[CudaRig]:
    """Four slots on GPU 0."""
    from helpers.cuda_core_rig import CudaRig

    core = CudaRig()
    yield core
    core.run()
    core.close()


def test_every_answer_is_its_own_inputs(core: CudaRig) -> None:
    """Thousands of requests of random sizes over four slots: one right answer each, no leak."""
    from helpers.cuda_core_rig import plus_one

    rng = random.Random(7)
    payloads = {}
    for index in range(3000):
        payload = rng.randbytes(rng.choice((0, 1, 64, 5000, 200_000)))
        payloads[core.submit(payload)] = payload
        if index % 7 == 0:
            core.scheduler.step(time.monotonic())
    core.run()
    assert all(
        core.replies[request] == [plus_one(payload)] for request, payload in payloads.items()
    )
    assert core.blocks.num_leased == 0
    assert core.poller.num_in_flight == 0


def test_a_cancelled_request_keeps_its_block_until_the_gpu_is_done(core: CudaRig) -> None:
    """The stream is held: cancelling and stepping frees nothing; letting go does."""
    from helpers.cudart_rig import Latch

    latch = Latch()
    for stream in core.streams:
        latch.hold(stream)
    request = core.submit(b"abc")
    for _ in range(100):
        core.scheduler.step(time.monotonic())
    core.scheduler.cancel(request)
    for _ in range(100):
        core.scheduler.step(time.monotonic())
    assert core.blocks.num_leased == 1
    assert core.poller.num_in_flight == 1
    latch.let_go()
    core.run()
    assert [type(answer) for answer in core.replies[request]] == [AbandonedError]
    assert core.blocks.num_leased == 0
    latch.free()


def test_all_slots_and_lanes_are_filled_while_the_gpu_is_held(core: CudaRig) -> None:
    """Two lanes a slot are enqueued though nothing is done: the streams never run dry."""
    from helpers.cudart_rig import Latch

    latch = Latch()
    for stream in core.streams:
        latch.hold(stream)
    requests = [core.submit(bytes([index])) for index in range(20)]
    core.scheduler.step(time.monotonic())
    assert [len(slot.in_flight) for slot in core.slots] == [2, 2, 2, 2]
    assert core.line.length == 12
    latch.let_go()
    core.run()
    assert [core.replies[request] for request in requests] == [[bytes([i + 1])] for i in range(20)]
    latch.free()


def test_stages_are_measured_by_the_gpus_own_events(core: CudaRig) -> None:
    """Copies and compute have times of their own, and together they are no more than the whole."""
    request = core.submit(bytes(2_000_000))
    began_at = time.monotonic()
    core.run()
    whole_s = time.monotonic() - began_at
    timing = request.timing
    assert timing is not None
    parts = (timing.h2d_s, timing.execute_s, timing.d2h_s)
    assert all(part > 0 for part in parts)
    assert sum(parts) <= whole_s
