"""The picture of a trace shows each lane's work where it belongs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.timeline.events import Record, Tracks
from headrace.timeline.file import TraceFile
from headrace.timeline.picture import BARS_PX, COLORS, NAME_PX, Window, middle, svg

SVG = "{http://www.w3.org/2000/svg}"


def record(number: int, slot: int, at: float) -> Record:
    """A request that copies for 1 ms, computes for 2 ms, copies for 1 ms."""
    copy_s, compute_s = 0.001, 0.002
    end = at + 2 * copy_s + compute_s
    return Record(
        *(number, "<net> version 1", slot, 0, 1, at, at, at, at, at),
        *(copy_s, compute_s, copy_s, end, end),
    )


@pytest.fixture
def events() -> list[dict[str, Any]]:
    """Two slots; the second begins 1 ms after the first."""
    tracks = Tracks()
    records = (record(0, 0, 0.0), record(1, 1, 0.001), record(2, 0, 0.1))
    return [event for each in records for event in tracks.events(each, 0.0)]


def bars(picture: str) -> list[tuple[str, float, float]]:
    """(name, left, width) of every bar."""
    names = {color: name for name, color in COLORS.items()}
    return [
        (names[each.get("fill", "")], float(each.get("x", "")), float(each.get("width", "")))
        for each in ET.fromstring(picture).iter(f"{SVG}rect")
        if each.get("height") == "14"
    ]


def test_bars_lie_where_the_times_are(events: list[dict[str, Any]]) -> None:
    """To scale, and only what is inside the window, cut at its edges."""
    drawn = bars(svg(events, Window(0.0, 4000.0), "trace"))
    ms = BARS_PX / 4
    at = [(name, (left - NAME_PX) / ms, width / ms) for name, left, width in drawn]
    assert at == [
        *(("h2d", 0, 1), ("execute", 1, 2), ("d2h", 3, 1)),
        *(("h2d", 1, 1), ("execute", 2, 2)),
    ]


def test_it_tells_the_share_of_hidden_copies(events: list[dict[str, Any]]) -> None:
    """Half of the four copies run while the other slot computes; markup stays text."""
    picture = svg(events, Window(0.0, 6000.0), "<trace> & more")
    texts = ["".join(each.itertext()) for each in ET.fromstring(picture).iter(f"{SVG}text")]
    assert "50% of the copy time here is hidden behind the compute of other slots" in texts
    assert texts[0] == "<trace> & more"
    assert {"slot 0 lane 0", "slot 1 lane 0"} <= set(texts)


def test_the_middle(events: list[dict[str, Any]]) -> None:
    """As long as was asked for; of a trace without work, too."""
    assert middle(events, 4000.0) == Window(50_000.0, 54_000.0)
    assert middle(events, 1e6) == Window(0.0, 1e6)
    assert middle([], 1000.0) == Window(0.0, 1000.0)
    assert bars(svg([], Window(0.0, 1000.0), "empty")) == []


def test_the_command_draws(events: list[dict[str, Any]], tmp_path: Path) -> None:
    """From a file on the disk, at the moment that was asked for."""
    path, picture = tmp_path / "trace.json", tmp_path / "picture.svg"
    file = TraceFile(path, {"sampled": "1 of 1 requests"})
    file.add(events)
    file.close()
    args = [
        "timeline",
        str(path),
        "--json",
        "--picture",
        str(picture),
        "--from",
        "99",
        "--for",
        "9",
    ]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["hidden_copy_share"] == pytest.approx(2 / 6)
    assert [name for name, _, _ in bars(picture.read_text())] == ["h2d", "execute", "d2h"]
    assert CliRunner().invoke(main, [*args[:-2], "--for", "0"]).exit_code == 2
