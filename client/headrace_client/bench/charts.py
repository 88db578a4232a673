"""Charts as SVG, drawn without a library, so that a report needs nothing but itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 40
NUM_COLOURS = 6  # the classes c0 … c5 of the page

Points = Sequence[tuple[float, float | None]]
Label = Callable[[float], str]


@dataclass(frozen=True)
class Axis:
    """Values along one side of a chart.

    Args:
        low: The least value; above 0 for a logarithmic one.
        high: The greatest.
        text: What they are, with the unit.
        is_log: Whether equal distances are equal factors.
        ticks: Where lines and labels are; None: at round numbers.
        label: Writes a value.
    """

    low: float
    high: float
    text: str
    is_log: bool = False
    ticks: Sequence[float] | None = None
    label: Label = lambda value: f"{value:,.6g}"

    def part(self, value: float) -> float:
        """Return where a value lies, 0 to 1."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        return (value - low) / (high - low) if high > low else 0.5

    def places(self) -> list[float]:
        """Return the values that have a line and a label."""
        if self.ticks is not None:
            return [tick for tick in self.ticks if self.low <= tick <= self.high]
        return log_ticks(self.low, self.high) if self.is_log else ticks(self.low, self.high)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two others: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two numbers; of a wide range only powers."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(decades) <= 4 else (1,)
    values = [factor * 10.0**decade for decade in decades for factor in factors]
    return [value for value in values if low * 0.999 <= value <= high * 1.001]


def line_chart(lines: Mapping[str, Points], x: Axis, y: Axis) -> str:
    """Draw lines by name; a point without a value parts its line."""
    return _chart(x, y, list(lines), _lines(lines, x, y))


def bar_chart(bars: Mapping[str, Sequence[float]], lefts: Sequence[float], x: Axis, y: Axis) -> str:
    """Draw bars that stand on each other.

    Args:
        bars: Heights by name, one for each place.
        lefts: Where each bar begins, and in the end where the last one ends.
        x: From the first to the last of them.
        y: From 0 on.
    """
    return _chart(x, y, list(bars), _bars(bars, lefts, x, y))


def _at_x(x: Axis, value: float) -> float:
    return _LEFT + x.part(value) * (WIDTH - _LEFT - _RIGHT)


def _at_y(y: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - y.part(value) * (HEIGHT - _TOP - _BOTTOM)


def _lines(lines: Mapping[str, Points], x: Axis, y: Axis) -> Iterator[str]:
    for colour, points in enumerate(lines.values()):
        run: list[str] = []
        for place, value in [*points, (0.0, None)]:
            if value is not None:
                run.append(f"{_at_x(x, place):.1f},{_at_y(y, value):.1f}")
            elif len(run) == 1:
                at_x, at_y = run[0].split(",")
                yield f'<circle class="dot c{colour % NUM_COLOURS}" cx="{at_x}" cy="{at_y}" r="2"/>'
                run = []
            elif run:
                path = " ".join(run)
                yield f'<polyline class="line c{colour % NUM_COLOURS}" points="{path}"/>'
                run = []


def _bars(
    bars: Mapping[str, Sequence[float]], lefts: Sequence[float], x: Axis, y: Axis
) -> Iterator[str]:
    below = [0.0] * (len(lefts) - 1)
    for colour, (name, heights) in enumerate(bars.items()):
        for place, height in enumerate(heights):
            if height <= 0:
                continue
            left, right = _at_x(x, lefts[place]), _at_x(x, lefts[place + 1])
            top, bottom = _at_y(y, below[place] + height), _at_y(y, below[place])
            below[place] += height
            shown = f"{escape(name)}: {y.label(height)} at {x.label(lefts[place])}"
            yield (
                f'<rect class="bar c{colour % NUM_COLOURS}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{max(right - left - 0.5, 0.5):.1f}" height="{bottom - top:.1f}">'
                f"<title>{shown}</title></rect>"
            )


def _chart(x: Axis, y: Axis, names: Sequence[str], marks: Iterator[str]) -> str:
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">', *_grid(x, y), *marks, "</svg>"]
    if len(names) > 1:
        keys = "".join(
            f'<span><i class="key c{colour % NUM_COLOURS}"></i>{escape(name)}</span>'
            for colour, name in enumerate(names)
        )
        parts.append(f'<p class="keys">{keys}</p>')
    return "\n".join(parts)


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for value in y.places():
        at = _at_y(y, value)
        yield f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y.label(value)}</text>'
    for value in x.places():
        at = _at_x(x, value)
        yield f'<path class="grid" d="M{at:.1f} {_TOP}V{bottom}"/>'
        label = escape(x.label(value))
        yield f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{label}</text>'
    middle = (_TOP + bottom) / 2
    yield f'<text x="{(_LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{x.text}</text>'
    yield (
        f'<text x="12" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 12 {middle})">{y.text}</text>'
    )
