"""What reports say, from a level whose figures are known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO

import numpy as np
import pytest

from headrace_client.bench import report_html, report_json, report_text
from headrace_client.bench.charts import Axis, log_ticks, ticks
from headrace_client.bench.conduct import Outcome
from headrace_client.bench.progress import Progress
from headrace_client.bench.record import OK, Record, Rows
from headrace_client.bench.report import Report, Subject, circumstances
from headrace_client.bench.server_side import ServerFigures
from headrace_client.bench.summary import figures
from headrace_client.bench.tally import Tally
from headrace_client.bench.verdict import ClientUse, judge

REFUSED = 14
NASTY = "<script>alert('&')</script>"
SUBJECT = Subject(
    url="gpu7:8001",
    server="headrace 0.1.0",
    model="digits",
    model_version="",
    inputs=["input FP32[2, 64]"],
    rows=2,
    request_bytes=561,
    deadline_ms=50.0,
    num_sources=3,
    flood="0:8",
    seed=0,
    num_processes=1,
    num_connections=4,
)
SERVER = ServerFigures(90, 10, 180, 60, 3.0, 4.0, 1.0, 0.25, 2.0, 0.5, {2: 30, 4: 30})
USE = ClientUse((0.25,), 0.3, 0.5, is_local=False)


def rows() -> Rows:
    """90 answers in a second, in 1 to 90 ms, and 10 refusals."""
    record = Record()
    for number in range(90):
        due_s = 5 + number / 100
        record.ended(due_s, due_s, due_s + (number + 1) / 1000, OK, number % 3)
    for number in range(10):
        record.ended(5.9 + number / 100, 5.91, 5.92, REFUSED, 0)
        record.said(REFUSED, NASTY)
    taken = record.take()
    assert taken is not None
    return taken


def outcome(value: float = 100.0, server: ServerFigures | None = SERVER) -> Outcome:
    tally = Tally(5.0, 6.0, 0.05, 3, is_open=True, step_s=0.1)
    tally.add(rows())
    seen = figures(tally, 6.5, flooding=0)
    verdict = judge(USE, 0.0001, 0.09, 0)
    return Outcome(
        kind="open",
        value=value,
        text=f"open loop, constant at {value:g}/s",
        was_interrupted=False,
        seen=seen,
        rows_per_s=2 * seen.throughput_per_s,
        server=server,
        outside_ms=41.5 if server else None,
        server_text="" if server else "UNIMPLEMENTED: no such method",
        use=USE,
        verdict=verdict,
    )


def report(*levels: Outcome) -> Report:
    return Report(SUBJECT, circumstances(), levels or (outcome(),))


def test_text() -> None:
    """Every figure that a person asks for first, with its unit."""
    text = report_text.text(report())
    for line in (
        r"digits at gpu7:8001 \(headrace 0.1.0\)",
        r"input FP32\[2, 64\]: 561 bytes a request, 3 sources, flood 0:8",
        r"  answered    90",
        r"  failed      10 \(10.00%\)",
        r"  goodput     50.0/s within 50 ms",
        r"  latency, from when due +45\.5 +4[45]\S* +8[01]\S* ",
        r"  UNAVAILABLE +10 +10.00%",
        r"  0, flooding +40 +23 +57.50%",
        r"  server      90 requests, 10 failed, 60 runs of 3 rows; mean 4 ms: queue 1, input 0.25",
        r".*, compute 2, output 0.5; outside of it 41.5",
        r"  client      The client was not the limit: .*",
    ):
        assert re.search(f"^{line}", text, re.MULTILINE), (line, text)
    assert "load" not in text, "one level is no sweep"


def test_text_of_a_sweep() -> None:
    """The table has a row a level, and dashes where the server said nothing."""
    text = report_text.text(report(outcome(100), outcome(200, server=None)))
    head, first, second = (line.split() for line in text.splitlines()[-3:])
    assert head[0] == "load"
    assert (first[0], second[0]) == ("100/s", "200/s")
    assert second[-4:] == ["–", "–", "–", "ok"]
    assert "no statistics: UNIMPLEMENTED: no such method" in text


def test_json_has_everything() -> None:
    """What text shows and more; no value that JSON does not have."""
    broken = replace(outcome(), value=float("inf"))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    read = json.loads(report_json.text(report(outcome(), broken)), parse_constant=refuse)
    assert read["schema"] == "headrace-bench/1"
    level, other = read["levels"]
    assert other["value"] is None
    assert level["seen"]["failures"] == [{"code": "UNAVAILABLE", "text": NASTY, "count": 10}]
    assert sum(level["seen"]["distribution"]["count"]) == 90
    assert level["server"]["executions_by_rows"] == {"2": 30, "4": 30}
    assert level["verdict"]["client_was_limit"] is False


class Page(HTMLParser):
    """Reads a page: which elements it has, and that each is closed."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_one_sound_page() -> None:
    """All charts, all closed, nothing from elsewhere, and nothing of the server's that acts."""
    text = report_html.text(report(outcome(100), outcome(200)))
    page = Page(text)
    assert page.seen.count("svg") == 2 + 2 * 5
    assert not {"script", "link", "img", "iframe", "object"} & set(page.seen)
    assert not re.search(r"https?:|src=|href=|url\(|@import", text)
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in text
    assert "nan" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)


def test_html_of_nothing() -> None:
    """A level in which nothing was answered is drawn, too."""
    seen = figures(Tally(5.0, 6.0, None, 1, is_open=False), 6.0)
    empty = replace(outcome(), seen=seen, server=None)
    assert Page(report_html.text(report(empty))).seen.count("svg") == 1
    assert "throughput  0.0/s" in report_text.text(report(empty))


@pytest.mark.parametrize(
    ("low", "high", "values"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 0.97, [0, 0.2, 0.4, 0.6, 0.8]),
        (0, 1234, [0, 500, 1000]),
        (3, 3, [3]),
    ],
)
def test_ticks(low: float, high: float, values: list[float]) -> None:
    """Round numbers, a handful."""
    assert ticks(low, high) == pytest.approx(values)


def test_log_ticks() -> None:
    """1, 2, 5 in a narrow range, powers of ten in a wide one; equal factors are equal distances."""
    assert log_ticks(0.9, 30) == pytest.approx([1, 2, 5, 10, 20])
    assert log_ticks(0.01, 1e4) == pytest.approx([10.0**power for power in range(-2, 5)])
    axis = Axis(1, 100, "", is_log=True)
    assert axis.part(10) == pytest.approx(0.5)


class Terminal(StringIO):
    """A stream that is, or is not, a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def test_progress_on_a_terminal() -> None:
    """One line in place, a second apart, that is gone in the end."""
    stream = Terminal(is_terminal=True)
    progress = Progress(stream)
    progress.begin("open loop", start_s=5.0, duration_s=10)
    progress.add(rows())
    progress.show(5.5)
    assert stream.getvalue() == ""
    progress.show(6.0)
    shown = stream.getvalue()
    assert shown.startswith("\r\x1b[Kopen loop: 1 of 10 s  90/s  p50 44.9 ms")
    assert shown.endswith("UNAVAILABLE 10/s")
    progress.show(7.0)
    assert stream.getvalue().endswith("open loop: 2 of 10 s  0/s")
    progress.end()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_progress_in_a_file() -> None:
    """Lines that stay, five seconds apart, without control characters; or nothing at all."""
    stream = Terminal(is_terminal=False)
    progress = Progress(stream)
    progress.begin("open loop", 5.0, None)
    progress.add(rows())
    for now_s in np.arange(5.0, 11.0, 0.5):
        progress.show(float(now_s))
    progress.end()
    first, line = stream.getvalue().splitlines()
    assert first == "open loop …"
    assert line.startswith("  5 s  18/s  p50")
    silent = Progress(None)
    silent.begin("open loop", 5.0, None)
    silent.add(rows())
    silent.show(100.0)
    silent.end()
