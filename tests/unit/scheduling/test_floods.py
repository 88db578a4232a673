"""One camera floods: what that costs the others, with the whole core in virtual time."""

from __future__ import annotations

import pytest

from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.dynamic import LEAD_S
from load.simulate.curves import ServiceCurve
from load.simulate.scenarios import watch_cameras

FULL_S = 4.5e-3
CAMERA = ServiceCurve("camera", ((1, 1.0e-3), (8, FULL_S)), max_rows=8)
NOISE_S = 0.1 * FULL_S  # runs stray by a twentieth


@pytest.mark.parametrize("num_cameras", [16, 40])
def test_the_others_wait_for_one_batch_more_and_share_a_full_one(num_cameras: int) -> None:
    """A flood fills the device and the queue; of the others no frame is lost."""
    spec = BatchingSpec(max_rows=8)
    calm, flooded = (
        watch_cameras(CAMERA, spec, num_cameras=num_cameras, flood=times, duration_s=1.5)
        for times in (1.0, 2560 / num_cameras)
    )
    assert flooded.num_lost == 0
    assert flooded.wait_p99_s <= calm.wait_p99_s + FULL_S + LEAD_S + NOISE_S
    assert flooded.p99_s <= calm.p99_s + 2 * FULL_S
