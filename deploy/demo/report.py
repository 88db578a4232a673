"""What the demo prints: images drawn in characters, and a table of answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SHADES = " .:-=+*#%@"  # from no ink to full ink; ASCII, for any terminal
INK_MAX = 16
NAME_WIDTH = 28
NUM_TEXTS = 3  # columns of text, on the left; numbers stand to the right

Pixels = NDArray[np.float32]  # (n, 64), from 0 to 16, row by row


class Row(NamedTuple):
    """One input: its name, the answer, and where the time went."""

    name: str
    answer: str
    is_correct: bool
    stages_ms: Mapping[str, float]


def drawing(images: Pixels) -> str:
    """Draw images beside each other, two characters to a pixel."""
    darkness = (images.reshape(-1, 8, 8) * (len(SHADES) - 1) / INK_MAX).astype(int)
    shades = np.array(list(SHADES))[darkness]
    return "\n".join(
        "   ".join("".join(shade * 2 for shade in image[row]) for image in shades).rstrip()
        for row in range(8)
    )


def table(rows: Sequence[Row], stages: Sequence[str]) -> str:
    """Lay out inputs, answers, verdicts and milliseconds by stage."""
    lines = [["INPUT", "ANSWER", "CORRECT?", *(stage.upper() for stage in stages)]]
    for row in rows:
        name = row.name if len(row.name) <= NAME_WIDTH else row.name[: NAME_WIDTH - 3] + "..."
        times = [_milliseconds(row.stages_ms[stage]) for stage in stages]
        lines.append([name, row.answer, "yes" if row.is_correct else "NO", *times])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    numbers = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(texts[:NUM_TEXTS] + numbers[NUM_TEXTS:])


def _milliseconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"  # a dash: not measured on this device
