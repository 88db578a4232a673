"""The ladder's table, JSON and chart, from hand-made results."""

from __future__ import annotations

import io
import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from headrace.ladder.chart import COLORS, ORDER_COLOR, html, svg
from headrace.ladder.figures import Figures, Result
from headrace.ladder.limits import Shares
from headrace.ladder.report import COLUMNS, Report, print_report
from headrace.ladder.rungs import Rung
from helpers.ladder_schema import check_report

SVG = "{http://www.w3.org/2000/svg}"


def result(rung: Rung, rows_per_s: float, shares: Shares, **known: float) -> Result:
    return Result(rung, Figures(2.0, 100, rows_per_s, 0.001, 0.004, 2e-5, shares, **known))


@pytest.fixture
def report() -> Report:
    """One rung of each sort; a name that is markup, a rung that failed."""
    return Report(
        "<b>&net.onnx",
        "onnxruntime_onnx",
        "cudart 0 (GPU <1>)",
        {"x": (1, 3, 8, 8)},
        2.0,
        [
            result(Rung(1, 1, 1, is_synchronous=True), 500, Shares(0.2, 0.1, 0.6)),
            result(Rung(4, 2, 1), 1000, Shares(0.3, 0.2, 0.97), hidden_share=0.9, nvml_share=0.99),
            result(Rung(8, 2, 1), 900, Shares(0.95, 0.2, 0.97), hidden_share=0.9),
            result(Rung(16, 2, 1), 800, Shares(0.3, 0.99, 0.9), hidden_share=0.2),
            Result(Rung(4, 2, 1, has_graphs=True), None, "no <graph> could be captured"),
        ],
    )


def test_json(report: Report) -> None:
    """It follows the schema, survives JSON, and says the same as the figures."""
    told: dict[str, Any] = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    check_report(told)
    assert [rung["name"] for rung in told["rungs"]] == [
        *("synchronous", "4 streams", "8 streams", "16 streams", "4 streams + graphs")
    ]
    figures = told["rungs"][1]["figures"]
    assert figures["factor"] == 2.0
    assert figures["latency_p99_ms"] == pytest.approx(4.0)
    assert figures["limit"] == {"resource": "compute", "share": 0.97, "is_full": True}
    assert told["rungs"][0]["figures"]["nvml_share"] is None
    assert told["rungs"][4]["figures"] is None
    assert told["recommendation"]["throughput"]["slots"] == 4


def test_table(report: Report) -> None:
    """A line for each rung, the reason of what failed, and both recommendations."""
    stream = io.StringIO()
    print_report(report, stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "<b>&net.onnx (onnxruntime_onnx) on cudart 0 (GPU <1>); x:1x3x8x8"
    assert lines[2].split("  ")[0] == COLUMNS[0]
    rows = {line.split("  ")[0]: line.split() for line in lines[3:8]}
    assert rows["4 streams"][2:] == [
        *("1,000", "2.00x", "1.000", "4.000", "20", "30%", "20%", "97%", "90%", "99%"),
        *("compute", "97%"),
    ]
    assert rows["4 streams + graphs"][-1] == "failed"
    assert "4 streams + graphs: no <graph> could be captured" in lines
    assert lines[-2].startswith("for throughput: 4 streams (slots 4, graphs off, batch 1): ")
    assert lines[-1].startswith("for latency: ")


def test_chart_is_xml(report: Report) -> None:
    """It parses, has a bar in the colour of the limit for each rung, and text stays text."""
    root = ET.fromstring(svg(report))
    assert root.tag == f"{SVG}svg"
    bars = [each for each in root.iter(f"{SVG}rect") if each.get("height") == "18"]
    assert [bar.get("fill") for bar in bars] == [
        *(ORDER_COLOR, COLORS["compute"], COLORS["host"], COLORS["copy"])
    ]
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert widths[1] == max(widths)
    assert widths[0] == pytest.approx(widths[1] / 2, rel=0.01)
    texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    assert "<b>&net.onnx: from synchronous to streams" in texts
    assert "no <graph> could be captured" in texts
    assert "http" not in svg(report).replace("http://www.w3.org/2000/svg", "")


def test_page_holds_the_chart(report: Report) -> None:
    """The HTML is one file that parses as XML, too, and contains the same drawing."""
    page = html(report)
    assert svg(report) in page
    root = ET.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    assert [each.text for each in root.iter("title")] == ["headrace ladder: <b>&net.onnx"]


def test_a_report_of_failures_alone(report: Report) -> None:
    """Nothing is advised, and table, JSON and chart still stand."""
    failed = Report("m", "p", "host", {}, 1.0, [report.results[-1]])
    stream = io.StringIO()
    print_report(failed, stream)
    assert "for throughput" not in stream.getvalue()
    told = failed.as_dict()
    check_report(told)
    assert told["recommendation"] is None
    ET.fromstring(svg(failed))
