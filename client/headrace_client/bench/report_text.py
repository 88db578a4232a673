"""The report for people, on a terminal; the page takes its tables and sentences from here, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace_client.bench.conduct import Outcome
from headrace_client.bench.report import Report, Subject
from headrace_client.bench.server_side import ServerFigures
from headrace_client.bench.summary import Durations, Figures, Sources

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
_MAX_TEXT = 100


def text(report: Report) -> str:
    """Write what was sent, every level, and a table of them where there are several."""
    lines = head(report)
    for level in report.levels:
        lines += ["", *_level(level, report.subject)]
    if len(report.levels) > 1:
        lines += ["", *table(*sweep(report))]
    return "\n".join(lines)


def head(report: Report) -> list[str]:
    """Say what was sent where, and with what."""
    subject, now = report.subject, report.circumstances
    server = f" ({subject.server})" if subject.server else ""
    processes = "process" if subject.num_processes == 1 else "processes"
    connections = "connection" if subject.num_connections == 1 else "connections"
    sources = f", {subject.num_sources:,} sources" if subject.num_sources > 1 else ""
    flood = f", flood {subject.flood}" if subject.flood else ""
    client = f"{subject.num_processes} {processes}, {subject.num_connections} {connections}"
    return [
        f"{subject.model} at {subject.url}{server}",
        f"{', '.join(subject.inputs)}: {subject.request_bytes:,} bytes a request{sources}{flood}",
        f"client: {client}, {now.event_loop}, {now.num_cores} cores",
    ]


def _level(level: Outcome, subject: Subject) -> Iterator[str]:
    seen = level.seen
    yield level.text
    yield from (f"  {name:11} {value}" for name, value in key_figures(level, subject))
    tables = [duration_table(level.kind, seen)]
    if seen.num_failed:
        tables.append(failure_table(seen))
    if seen.sources is not None:
        tables.append(source_table(seen.sources))
    for each in tables:
        yield ""
        yield from (f"  {line}" for line in table(*each))
    yield ""
    yield f"  server      {server_line(level)}"
    yield f"  client      {level.verdict.text}"


def key_figures(level: Outcome, subject: Subject) -> list[tuple[str, str]]:
    """Return what matters most, by name."""
    seen = level.seen
    early = ", ended early" if level.was_interrupted else ""
    figures = [
        ("measured", f"{seen.measured_s:.4g} s{early}"),
        ("requests", f"{seen.num_due:,}"),
        ("answered", f"{seen.num_ok:,}"),
        ("failed", f"{seen.num_failed:,}{_share(seen.num_failed, seen.num_due)}"),
        ("throughput", f"{seen.throughput_per_s:,.1f}/s"),
    ]
    if subject.rows > 1:
        figures.append(("rows", f"{level.rows_per_s:,.1f}/s"))
    if subject.deadline_ms is not None:
        within = f"within {subject.deadline_ms:g} ms"
        figures.append(("goodput", f"{seen.goodput_per_s:,.1f}/s {within}"))
    return figures


def duration_table(kind: str, seen: Figures) -> Table:
    """Latencies, what a late client adds to them, and how long errors took."""
    rows = [("latency", seen.latency)]
    if kind == "open":
        rows = [("latency, from when due", seen.latency), ("from when sent", seen.service)]
    if seen.failing.count:
        rows.append(("until an error", seen.failing))
    rows.append(("client's lag", seen.lag))
    columns = ["ms", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"]
    return columns, [[name, *_cells(values)] for name, values in rows]


def _cells(values: Durations) -> list[str]:
    shown = (values.mean_ms, values.p50_ms, values.p90_ms, values.p95_ms, values.p99_ms)
    return [number(value) for value in (*shown, values.p999_ms, values.max_ms)]


def failure_table(seen: Figures) -> Table:
    """Statuses, and below each its texts, the most frequent first."""
    rows = []
    for code, count in seen.codes.items():
        if code == "OK":
            continue
        rows.append([code, f"{count:,}", f"{count / seen.num_due:.2%}"])
        rows += [
            [f"  {failure.text[:_MAX_TEXT]}", f"{failure.count:,}", ""]
            for failure in seen.failures
            if failure.code == code
        ]
    return ["failures", "requests", "of all"], rows


def source_table(sources: Sources) -> Table:
    """The flooding source, all others together, and the worst of these."""
    parts = [
        (sources.others.source, sources.others),
        (f"{sources.worst.source}, worst", sources.worst),
    ]
    if sources.flooding is not None:
        parts.insert(0, (f"{sources.flooding.source}, flooding", sources.flooding))
    rows = [
        [
            name,
            f"{part.num_due:,}",
            f"{part.num_lost:,}",
            f"{part.lost_share:.2%}",
            number(part.p50_ms),
            number(part.p99_ms),
        ]
        for name, part in parts
    ]
    return ["source", "requests", "lost", "of all", "p50 ms", "p99 ms"], rows


def server_line(level: Outcome) -> str:
    """Say what the server counted, or why nobody knows."""
    if level.server is None:
        return f"no statistics: {level.server_text}"
    outside = ""
    if level.outside_ms is not None:
        outside = f"; outside of it {number(level.outside_ms)}"
    return f"{_server(level.server)}{outside}"


def _server(server: ServerFigures) -> str:
    each = ""
    if server.rows_per_execution is not None:
        each = f" of {server.rows_per_execution:.3g} rows"
    parts = (
        ("queue", server.queue_ms),
        ("input", server.input_ms),
        ("compute", server.compute_ms),
        ("output", server.output_ms),
    )
    means = ", ".join(f"{name} {number(value)}" for name, value in parts if value is not None)
    failed = f", {server.num_failed:,} failed" if server.num_failed else ""
    total = f"; mean {number(server.request_ms)} ms: {means}" if means else ""
    return f"{server.num_succeeded:,} requests{failed}, {server.num_executions:,} runs{each}{total}"


def sweep(report: Report) -> Table:
    """All levels, one a row."""
    columns = ["load", "req/s", "goodput/s", "failed", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms"]
    columns += ["queue ms", "compute ms", "rows/run", "client"]
    rows = []
    for level in report.levels:
        seen, server = level.seen, level.server
        latency = (seen.latency.p50_ms, seen.latency.p90_ms, seen.latency.p99_ms)
        means = (server.queue_ms, server.compute_ms, server.rows_per_execution) if server else ()
        rows.append(
            [
                f"{level.value:,.6g}{'' if level.kind == 'closed' else '/s'}",
                f"{seen.throughput_per_s:,.1f}",
                f"{seen.goodput_per_s:,.1f}",
                f"{seen.num_failed:,}",
                *map(number, (*latency, seen.latency.p999_ms)),
                *map(number, means or (None,) * 3),
                level.verdict.word,
            ]
        )
    return columns, rows


def number(value: float | None) -> str:
    """Write a duration or a mean with three digits; – where there is none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table, the first column to the left, numbers to the right."""
    lines = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.2%})" if part else ""
