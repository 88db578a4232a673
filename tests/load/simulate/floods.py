"""What one flooding camera costs the others, by how many they are: `-m load.simulate.floods`.

The flood is the same each time: as many frames as 2560 of the steady cameras would send, more than
the device can do. In virtual time; the table of docs/scheduling.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from headrace.engines.batching_spec import BatchingSpec
from load.simulate.docs import CAMERA
from load.simulate.scenarios import watch_cameras
from load.simulate.sweep import SEEDS

CAMERAS = (64, 48, 32, 16)
FLOOD = 2560
FRAMES_PER_S = 25.0
SECONDS = 3.0


def p99s(num_cameras: int, flood: float) -> tuple[float, float]:
    """Return the worst other camera's p99 until it runs and until it is answered, in seconds."""
    spec = BatchingSpec(max_rows=CAMERA.max_rows)
    seen = [
        watch_cameras(
            *(CAMERA, spec),
            num_cameras=num_cameras,
            rate=FRAMES_PER_S,
            flood=flood,
            duration_s=SECONDS,
            seed=seed,
        )
        for seed in SEEDS
    ]
    return fmean(each.wait_p99_s for each in seen), fmean(each.p99_s for each in seen)


def rows() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| cameras | p99 until it runs | in batches | p99 of the answer | in batches |"
    yield "| --: | --: | --: | --: | --: |"
    batch_s = CAMERA.mean_s(CAMERA.max_rows)
    for num_cameras in CAMERAS:
        pairs = zip(p99s(num_cameras, 1.0), p99s(num_cameras, FLOOD / num_cameras), strict=True)
        cells = [
            f"{calm * 1e3:.1f} -> {flooded * 1e3:.1f} ms | +{(flooded - calm) / batch_s:.2f}"
            for calm, flooded in pairs
        ]
        yield f"| {num_cameras} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print(*rows(), sep="\n")
