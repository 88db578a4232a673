"""Draws a stretch of a trace as one self-contained SVG: a row a lane, a bar for all that it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from xml.sax.saxutils import escape

from headrace.timeline.events import LANE
from headrace.timeline.overlap import overlap
from headrace.timeline.trace import spans_of

NAME_PX: Final = 150
BARS_PX: Final = 1000
ROW_PX: Final = 20
TOP_PX: Final = 64
BOTTOM_PX: Final = 52
NUM_TICKS: Final = 10
COLORS: Final = {"h2d": "#2f6fc9", "execute": "#a9d8bd", "d2h": "#8a4fc9"}
STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#1f2933}.quiet{fill:#616e7c;font-size:11px}"
    ".title{font-size:15px;font-weight:600}.grid{stroke:#e4e7eb}"
)

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch that is drawn, in microseconds of the trace."""

    since_us: float
    until_us: float

    def x(self, at_us: float) -> float:
        """Return where a moment is drawn."""
        share = (at_us - self.since_us) / (self.until_us - self.since_us)
        return NAME_PX + BARS_PX * min(1.0, max(0.0, share))


def middle(events: Sequence[Event], length_us: float) -> Window:
    """Return so long a stretch out of the middle of what the lanes did."""
    spans = [event for event in events if event["ph"] == "X"]
    first = min((event["ts"] for event in spans), default=0.0)
    last = max((event["ts"] + event["dur"] for event in spans), default=length_us)
    since_us = max(first, (first + last - length_us) / 2)
    return Window(since_us, since_us + length_us)


def svg(events: Sequence[Event], window: Window, title: str) -> str:
    """Return the picture."""
    inside = [
        event
        for event in events
        if event["ph"] == "X"
        and event.get("cat") == LANE
        and event["ts"] < window.until_us
        and event["ts"] + event["dur"] > window.since_us
    ]
    lanes = sorted({(event["pid"], event["tid"]) for event in inside})
    width, height = NAME_PX + BARS_PX + 20, TOP_PX + ROW_PX * len(lanes) + BOTTOM_PX
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(12, 24, title, "title"),
        _text(12, 44, _told(inside), "quiet"),
        *_grid(window, len(lanes)),
        *_lanes(events, inside, lanes, window),
        *_legend(height - 14),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _told(inside: Sequence[Event]) -> str:
    share = overlap(spans_of(inside)).hidden_share
    if share is None:
        return "no copies"
    return f"{share:.0%} of the copy time here is hidden behind the compute of other slots"


def _lanes(
    events: Sequence[Event],
    inside: Sequence[Event],
    lanes: Sequence[tuple[int, int]],
    window: Window,
) -> Iterator[str]:
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    for place, lane in enumerate(lanes):
        yield _text(12, TOP_PX + ROW_PX * place + 14, names.get(lane, "a lane without a name"))
    rows = {lane: place for place, lane in enumerate(lanes)}
    for event in inside:
        left, right = window.x(event["ts"]), window.x(event["ts"] + event["dur"])
        y = TOP_PX + ROW_PX * rows[event["pid"], event["tid"]] + 3
        about = f"{event['name']} {event['dur']:.1f} us, request {event['args']['request']}"
        yield (
            f'<rect x="{left:.2f}" y="{y}" width="{max(right - left, 0.5):.2f}" height="14" '
            f'fill="{COLORS[event["name"]]}"><title>{escape(about)}</title></rect>'
        )


def _grid(window: Window, num_rows: int) -> Iterator[str]:
    bottom = TOP_PX + ROW_PX * num_rows
    length_us = window.until_us - window.since_us
    for tick in range(NUM_TICKS + 1):
        at_us = window.since_us + length_us * tick / NUM_TICKS
        x = window.x(at_us)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP_PX}" y2="{bottom}"/>'
        if tick % 2 == 0:
            yield _text(x - 18, bottom + 14, f"{at_us / 1e3:.2f} ms", "quiet")


def _legend(y: int) -> Iterator[str]:
    x = NAME_PX
    for name, color in COLORS.items():
        yield f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{color}"/>'
        yield _text(x + 17, y, name, "quiet")
        x += 90


def _text(x: float, y: float, text: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}>{escape(text)}</text>'
