"""The trace file is whole after every write."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from headrace.timeline.file import TraceFile


def read(path: Path) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return trace


def test_it_is_valid_after_every_write(tmp_path: Path) -> None:
    """From the moment it is made on; nothing needs to be closed for that."""
    path = tmp_path / "trace.json"
    file = TraceFile(path, {"program": "headrace"})
    assert read(path) == {
        "displayTimeUnit": "ms",
        "otherData": {"program": "headrace"},
        "traceEvents": [],
    }
    for turn in range(3):
        file.add([{"n": turn}, {"name": "é\n"}])
        assert len(read(path)["traceEvents"]) == 2 * (turn + 1)
        assert path.stat().st_size == file.size_bytes
    file.add([])
    assert [event.get("n") for event in read(path)["traceEvents"]] == [0, None, 1, None, 2, None]
    file.close()
    file.close()


def test_a_file_that_is_there_is_replaced(tmp_path: Path) -> None:
    """A longer one leaves nothing behind."""
    path = tmp_path / "trace.json"
    path.write_text("x" * 10_000)
    TraceFile(path, {}).close()
    assert read(path)["traceEvents"] == []


def test_a_full_disk_leaves_a_valid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is left out as a whole, and the error is told."""
    path = tmp_path / "trace.json"
    file = TraceFile(path, {})
    file.add([{"n": 0}])
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:9], at))
    with pytest.raises(OSError, match="only 9 of"):
        file.add([{"n": 1}])
    monkeypatch.undo()
    assert read(path)["traceEvents"] == [{"n": 0}]
    file.close()


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """The system's own error says why."""
    with pytest.raises(OSError, match="No such file") as raised:
        TraceFile(tmp_path / "missing" / "trace.json", {})
    assert raised.value.errno == errno.ENOENT
