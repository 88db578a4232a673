"""The report as one page that needs nothing else: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from headrace_client.bench import report_charts as charts
from headrace_client.bench import report_text
from headrace_client.bench.conduct import Outcome
from headrace_client.bench.report import Report, Subject

_STYLE = """
:root { --ink: #1b2733; --pale: #66727e; --paper: #fff; --rule: #e3e8ed;
  --c0: #1668b8; --c1: #d9730d; --c2: #b3261e; --c3: #7a4bb5; --c4: #2e8555; --c5: #8a6d00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --pale: #98a4b0; --paper: #14191f;
  --rule: #2b333c; --c0: #62a8ee; --c1: #f0a35b; --c2: #f07f77; --c3: #b795e8; --c4: #6cc394;
  --c5: #d8bd55; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .3rem; }
h3 { font-size: .95rem; margin: 0 0 .3rem; } p { margin: .3rem 0; } .pale { color: var(--pale); }
.figures { display: flex; flex-wrap: wrap; gap: .4rem 2.4rem; margin: .8rem 0; }
.figures b { display: block; font-size: 1.35rem; font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(430px, 1fr));
  gap: 1.4rem 1.6rem; margin: 1.2rem 0; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .8rem .15rem 0; border-bottom: 1px solid var(--rule); text-align: right; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
td.text { text-align: left; word-break: break-word; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--pale); }
.grid { stroke: var(--rule); } .line { fill: none; stroke-width: 1.6; }
.keys span { margin-right: 1rem; } .key { display: inline-block; width: 1.1em; height: .35em;
  margin-right: .4em; vertical-align: middle; }
""" + "".join(
    f".line.c{n} {{ stroke: var(--c{n}); }} .bar.c{n}, .dot.c{n} {{ fill: var(--c{n}); }} "
    f".key.c{n} {{ background: var(--c{n}); }}\n"
    for n in range(6)
)


def text(report: Report) -> str:
    """Write the page."""
    subject = report.subject
    title = f"{escape(subject.model)} at {escape(subject.url)}"
    return "\n".join(
        (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            *_head(report),
            *(_sweep(report) if len(report.levels) > 1 else ()),
            *(line for level in report.levels for line in _level(level, subject)),
            "</body></html>\n",
        )
    )


def _head(report: Report) -> Iterator[str]:
    subject, now = report.subject, report.circumstances
    lines = report_text.head(report)[1:]
    yield from (f'<p class="pale">{escape(line)}</p>' for line in lines)
    yield (
        f'<p class="pale">{escape(subject.server)} seen by headrace-client {escape(now.client)}, '
        f"Python {now.python}, grpcio {now.grpcio}, {escape(now.machine)}; started {now.started}"
        f"; seed {subject.seed}</p>"
    )


def _sweep(report: Report) -> Iterator[str]:
    yield "<h2>All levels</h2>"
    yield _table(*report_text.sweep(report))
    rates, latencies = charts.sweep_charts(report.levels)
    yield _charts((("Throughput and goodput over the load", rates), ("Latency", latencies)))


def _level(level: Outcome, subject: Subject) -> Iterator[str]:
    seen = level.seen
    yield f"<h2>{escape(level.text)}</h2>"
    yield _figures(report_text.key_figures(level, subject))
    yield f"<p>{escape(level.verdict.text)}</p>"
    yield _table(*report_text.duration_table(level.kind, seen))
    if seen.num_failed:
        yield _table(*report_text.failure_table(seen), text_columns=2)
    if seen.sources is not None:
        yield _table(*report_text.source_table(seen.sources))
    yield f"<p>server: {escape(report_text.server_line(level))}</p>"
    drawn = []
    if seen.latency.count:
        drawn += [
            ("Latency distribution", charts.distribution_chart(seen.distribution)),
            ("Latency by percentile", charts.percentile_chart(seen.distribution)),
            ("Latency over time", charts.latency_chart(seen.series)),
        ]
    with_goodput = subject.deadline_ms is not None
    throughput = charts.throughput_chart(seen.series, with_goodput=with_goodput)
    drawn.append(("Throughput over time", throughput))
    if seen.series.failures_per_s:
        drawn.append(("Failures over time", charts.failure_chart(seen.series)))
    yield _charts(drawn)


def _figures(figures: Sequence[tuple[str, str]]) -> str:
    parts = "".join(f"<div><b>{escape(value)}</b>{escape(name)}</div>" for name, value in figures)
    return f'<div class="figures">{parts}</div>'


def _charts(drawn: Sequence[tuple[str, str]]) -> str:
    parts = "\n".join(f"<div><h3>{title}</h3>{chart}</div>" for title, chart in drawn)
    return f'<div class="charts">{parts}</div>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    for row in rows:
        cells = "".join(
            f'<td class="text">{escape(cell)}</td>'
            if place < text_columns
            else f"<td>{escape(cell)}</td>"
            for place, cell in enumerate(row)
        )
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table>"])
