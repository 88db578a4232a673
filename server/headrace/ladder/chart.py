"""Draws the ladder as one self-contained SVG: a bar for throughput and a line for latency a rung.

Hand-written: a bar chart needs no library, and the file opens anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, log10
from typing import Final
from xml.sax.saxutils import escape

from headrace.ladder.figures import Figures
from headrace.ladder.report import Report

ROW_PX: Final = 26
TOP_PX: Final = 84
NAME_PX: Final = 225
BAR_PX: Final = 380  # of the fastest rung
VALUE_PX: Final = 150  # for the text behind a bar
LATENCY_PX: Final = 260
GAP_PX: Final = 24
WIDTH_PX: Final = NAME_PX + BAR_PX + VALUE_PX + LATENCY_PX + 2 * GAP_PX
LATENCY_AT_PX: Final = NAME_PX + BAR_PX + VALUE_PX + GAP_PX
COLORS: Final = {"host": "#c2571a", "copy": "#8a6fc9", "compute": "#2f8f5b"}
ORDER_COLOR: Final = "#9aa3ad"  # nothing is full
STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933}.quiet{fill:#616e7c;font-size:11px}"
    ".title{font-size:16px;font-weight:600}.grid{stroke:#e4e7eb}.span{stroke:#3e4c59;stroke-width:2}"
)


def svg(report: Report) -> str:
    """Return the chart as an SVG document."""
    height = TOP_PX + ROW_PX * len(report.results) + 48
    size = f'width="{WIDTH_PX}" height="{height}" viewBox="0 0 {WIDTH_PX} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH_PX}" height="{height}" fill="#ffffff"/>',
        _text(12, 26, f"{report.model}: from synchronous to streams", "title"),
        _text(12, 46, f"{report.platform} on {report.device}", "quiet"),
        _text(NAME_PX, TOP_PX - 12, "rows/s; colour: what limits", "quiet"),
        _text(LATENCY_AT_PX, TOP_PX - 12, "latency, p50 to p99, ms, logarithmic", "quiet"),
        *_rows(report),
        *_legend(height - 18),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def html(report: Report) -> str:
    """Return the chart as a page of its own."""
    title = escape(f"headrace ladder: {report.model}")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>'
        f"</head><body>\n{svg(report)}</body></html>\n"
    )


def _rows(report: Report) -> Iterator[str]:
    known = [each.figures for each in report.results if each.figures is not None]
    if known:
        yield from _latency_grid(known, len(report.results))
    most = max((each.rows_per_s for each in known), default=1.0)
    for place, result in enumerate(report.results):
        y = TOP_PX + ROW_PX * place
        yield _text(12, y + 17, result.rung.name)
        if result.figures is None:
            yield _text(NAME_PX, y + 17, result.error, "quiet")
            continue
        figures = result.figures
        limit = figures.limit
        width = BAR_PX * figures.rows_per_s / most
        color = COLORS[limit.resource] if limit.is_full else ORDER_COLOR
        yield (
            f'<rect x="{NAME_PX}" y="{y + 4}" width="{max(width, 1):.1f}" height="18" '
            f'fill="{color}"><title>{escape(limit.text)}</title></rect>'
        )
        factor = report.factor(result) or 0.0
        yield _text(NAME_PX + width + 6, y + 17, f"{figures.rows_per_s:,.0f} ({factor:.2f}x)")
        yield from _latency(figures, known, y + 13)


def _latency(figures: Figures, known: list[Figures], y: int) -> Iterator[str]:
    left, right = (_latency_x(each, known) for each in (figures.p50_s, figures.p99_s))
    yield f'<line class="span" x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}"/>'
    yield f'<circle cx="{left:.1f}" cy="{y}" r="4" fill="#3e4c59"/>'
    yield (
        f'<circle cx="{right:.1f}" cy="{y}" r="4" fill="#ffffff" stroke="#3e4c59" '
        f'stroke-width="2"><title>p50 {figures.p50_s * 1e3:.3f} ms, p99 '
        f"{figures.p99_s * 1e3:.3f} ms</title></circle>"
    )


def _latency_grid(known: list[Figures], num_rows: int) -> Iterator[str]:
    low, high = _decades(known)
    for decade in range(low, high + 1):
        x = _latency_x(10.0**decade, known)
        bottom = TOP_PX + ROW_PX * num_rows
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP_PX}" y2="{bottom}"/>'
        yield _text(x - 8, bottom + 14, f"{10.0 ** (decade + 3):g}", "quiet")


def _latency_x(seconds_s: float, known: list[Figures]) -> float:
    low, high = _decades(known)
    return LATENCY_AT_PX + LATENCY_PX * (log10(seconds_s) - low) / (high - low)


def _decades(known: list[Figures]) -> tuple[int, int]:
    """Return the powers of ten, in seconds, that hold all latencies."""
    low = floor(min(log10(each.p50_s) for each in known))
    return low, max(ceil(max(log10(each.p99_s) for each in known)), low + 1)


def _legend(y: int) -> Iterator[str]:
    x = NAME_PX
    for name, color in (*COLORS.items(), ("nothing is full", ORDER_COLOR)):
        yield f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{color}"/>'
        yield _text(x + 17, y, name, "quiet")
        x += 90


def _text(x: float, y: float, text: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}>{escape(text)}</text>'
