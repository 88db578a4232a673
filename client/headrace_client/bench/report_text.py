"""The report for people, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace_client.bench.conduct import Outcome
from headrace_client.bench.report import Report, Subject
from headrace_client.bench.server_side import ServerFigures
from headrace_client.bench.summary import Durations, Figures, SourceFigures

_MAX_FAILURES = 10


def text(report: Report) -> str:
    """Write what was sent, every level, and a table of them where there are several."""
    lines = list(_head(report))
    for level in report.levels:
        lines += ["", *_level(level, report.subject)]
    if len(report.levels) > 1:
        lines += ["", *_sweep(report)]
    return "\n".join(lines)


def _head(report: Report) -> Iterator[str]:
    subject, now = report.subject, report.circumstances
    server = f" ({subject.server})" if subject.server else ""
    yield f"{subject.model} at {subject.url}{server}"
    yield f"{', '.join(subject.inputs)}: {subject.request_bytes:,} bytes a request"
    processes = "process" if subject.num_processes == 1 else "processes"
    connections = "connection" if subject.num_connections == 1 else "connections"
    yield (
        f"client: {subject.num_processes} {processes}, {subject.num_connections} {connections}, "
        f"{now.event_loop}, {now.num_cores} cores"
    )


def _level(level: Outcome, subject: Subject) -> Iterator[str]:
    seen = level.seen
    ended = ", ended early" if level.was_interrupted else ""
    yield f"{level.text}, measured for {seen.measured_s:.4g} s{ended}"
    yield f"  requests    {seen.num_due:,}: {seen.num_ok:,} answered, {seen.num_failed:,} failed"
    rows = f", {level.rows_per_s:,.1f} rows/s" if subject.rows > 1 else ""
    yield f"  throughput  {seen.throughput_per_s:,.1f}/s{rows}"
    if subject.deadline_ms is not None:
        yield f"  goodput     {seen.goodput_per_s:,.1f}/s within {subject.deadline_ms:g} ms"
    yield ""
    yield from _indented(_durations(level.kind, seen))
    if seen.failures or seen.num_failed:
        yield ""
        yield from _failures(seen)
    if seen.sources is not None:
        yield ""
        parts = (seen.sources.flooding, seen.sources.others, seen.sources.worst)
        yield from _indented(_source_table([part for part in parts if part is not None], seen))
    yield ""
    if level.server is not None:
        yield f"  server      {_server(level.server)}"
    else:
        yield f"  server      no statistics: {level.server_text}"
    yield f"  client      {level.verdict.text}"


def _durations(kind: str, seen: Figures) -> list[str]:
    rows = [("latency", seen.latency)]
    if kind == "open":
        rows = [("latency, from when due", seen.latency), ("from when sent", seen.service)]
    if seen.failing.count:
        rows.append(("until an error", seen.failing))
    rows.append(("client's lag", seen.lag))
    head = ["ms", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"]
    return table(head, [[name, *_cells(values)] for name, values in rows])


def _cells(values: Durations) -> list[str]:
    shown = (values.mean_ms, values.p50_ms, values.p90_ms, values.p95_ms, values.p99_ms)
    return [number(value) for value in (*shown, values.p999_ms, values.max_ms)]


def _failures(seen: Figures) -> Iterator[str]:
    for code, count in seen.codes.items():
        if code == "OK":
            continue
        yield f"  {code} {count:,} ({count / seen.num_due:.1%})"
        for failure in seen.failures[:_MAX_FAILURES]:
            if failure.code == code:
                yield f"    {failure.count:,} × {failure.text}"


def _source_table(parts: Sequence[SourceFigures], seen: Figures) -> list[str]:
    assert seen.sources is not None
    names = [part.source for part in parts]
    if seen.sources.flooding is not None:
        names[0] = f"{names[0]} (floods)"
    names[-1] = f"{names[-1]} (worst)"
    rows = [
        [
            name,
            f"{part.num_due:,}",
            f"{part.num_lost:,}",
            f"{part.lost_share:.2%}",
            number(part.p50_ms),
            number(part.p99_ms),
        ]
        for name, part in zip(names, parts, strict=True)
    ]
    return table(["source", "requests", "lost", "", "p50 ms", "p99 ms"], rows)


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


def _sweep(report: Report) -> list[str]:
    head = ["load", "req/s", "goodput/s", "failed", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms"]
    head += ["queue ms", "compute ms", "rows/run", "client"]
    rows = []
    for level in report.levels:
        seen, server = level.seen, level.server
        rows.append(
            [
                f"{level.value:,.6g}{'' if level.kind == 'closed' else '/s'}",
                f"{seen.throughput_per_s:,.1f}",
                f"{seen.goodput_per_s:,.1f}",
                f"{seen.num_failed:,}",
                *(number(seen.latency.p50_ms), number(seen.latency.p90_ms)),
                *(number(seen.latency.p99_ms), number(seen.latency.p999_ms)),
                number(server.queue_ms if server else None),
                number(server.compute_ms if server else None),
                number(server.rows_per_execution if server else None),
                level.verdict.word,
            ]
        )
    return table(head, rows)


def number(value: float | None) -> str:
    """Write a duration or a mean with three digits; – where there is none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table, the first column to the left, numbers to the right."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _indented(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"  {line}" for line in lines)
