"""What may be said on the command line, and what becomes of it."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headrace_client.bench.level import ClosedLoop, OpenLoop
from headrace_client.bench.options import add_options
from headrace_client.bench.plan import (
    PlannedLevel,
    levels,
    num_connections,
    num_processes,
)
from headrace_client.bench.schedule import Bursts, Constant, Poisson, Replay
from headrace_client.bench.usage import UsageError


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(["m", *arguments])


def _npy(array: npt.NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def planned(*arguments: str) -> list[PlannedLevel]:
    return levels(parsed(*arguments))


def schedule_of(*arguments: str) -> Any:
    (only,) = planned(*arguments)
    assert isinstance(only.level.load, OpenLoop)
    return only.level.load.schedule


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", [8]),
        ("1:4", [1, 2, 3, 4]),
        ("1:32:4", [1, 5, 9, 13, 17, 21, 25, 29]),
        ("1,2,4,8", [1, 2, 4, 8]),
    ],
)
@pytest.mark.parametrize("flag", ["-c", "--concurrency", "--concurrency-range"])
def test_concurrency(flag: str, text: str, values: list[int]) -> None:
    """A number, perf_analyzer's range, or a list."""
    seen = planned(flag, text)
    assert [each.value for each in seen] == values
    assert all(isinstance(each.level.load, ClosedLoop) for each in seen)


@pytest.mark.parametrize("flag", ["-r", "--rate", "--rps", "--request-rate-range"])
def test_rates(flag: str) -> None:
    """A range holds its end, in spite of what floats are."""
    seen = planned(flag, "0.1:0.5:0.1")
    assert [each.value for each in seen] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert [each.kind for each in seen] == ["open"] * 5


def test_the_least_is_one_caller_for_ten_seconds() -> None:
    """As in perf_analyzer: one request at a time."""
    (only,) = planned()
    assert (only.text, only.level.duration_s) == ("closed loop, 1 in flight", 10)
    assert only.level.warm_up_s == 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2), ("2s", 2), ("500ms", 0.5), ("1.5m", 90), ("1h", 3600)]
)
def test_durations(text: str, seconds: float) -> None:
    """Seconds, or a number with its unit."""
    assert parsed("--duration", text).duration_s == pytest.approx(seconds)


def test_a_number_of_requests_needs_no_duration() -> None:
    """And with both, what comes first ends it."""
    (by_number,) = planned("-n", "50")
    assert (by_number.level.duration_s, by_number.level.num_requests) == (None, 50)
    (by_both,) = planned("-n", "50", "--duration-s", "3")
    assert (by_both.level.duration_s, by_both.level.num_requests) == (3, 50)


@pytest.mark.parametrize(
    "wrong",
    [
        ["-c", "0"],
        ["-c", "4:1"],
        ["-c", "1:2:3:4"],
        ["-c", "x"],
        ["-r", "-5"],
        ["-r", "inf"],
        ["-r", "nan"],
        ["--duration", "soon"],
        ["--bursts", "0:1"],
        ["--bursts", "1"],
        ["--flood", "x:2"],
        ["--flood", "1:0"],
        ["--shape", "1x3"],
        ["--shape", "x:1xx3"],
        ["--parameter", "=1"],
        ["--parameter", "a"],
        ["--deadline-ms", "0"],
        ["--data", "ones"],
        ["-b", "1.5"],
    ],
)
def test_what_cannot_be_read(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Bad usage exits with 2, and quotes what came."""
    with pytest.raises(SystemExit) as caught:
        parsed(*wrong)
    assert caught.value.code == 2
    assert wrong[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-c", "1", "-r", "5"], "choose one way"),
        (["--rate-per-source", "1", "-r", "5"], "choose one way"),
        (["--bursts", "1:1"], "--bursts needs --rate"),
        (["--sources", "20000"], "at most 10000"),
        (["--flood", "0:5"], "at least 2"),
        (["--sources", "4", "--flood", "4:5"], "a source below --sources"),
        (["--replay", "absent.txt"], "absent.txt"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], text: str) -> None:
    """Is told before anything is sent."""
    with pytest.raises(UsageError, match=text):
        planned(*arguments)


def test_schedules() -> None:
    """Constant unless asked otherwise, each source with a phase of its own, and bursts around."""
    constant = schedule_of("-r", "100", "--sources", "4")
    assert isinstance(constant, Constant)
    assert constant.rates.tolist() == [25] * 4
    assert len(set(constant.phases)) == 4
    poisson = schedule_of("-r", "100", "--request-distribution", "poisson", "--seed", "3")
    assert isinstance(poisson, Poisson)
    assert poisson.seed == 3
    bursts = schedule_of("-r", "100", "--bursts", "0.5:1.5")
    assert isinstance(bursts, Bursts)
    assert (bursts.rate, bursts.inner.rate) == (100, 400)


def test_sources_and_a_flood() -> None:
    """64 cameras at 25 a second, one of them at ten times that."""
    (only,) = planned("--sources", "64", "--rate-per-source", "25", "--flood", "7:10")
    assert only.value == 63 * 25 + 250
    assert only.text == "open loop, constant at 1,600/s, 1,825/s with the flood"
    (closed,) = planned("-c", "4", "--sources", "3", "--flood", "1:2")
    assert isinstance(closed.level.load, ClosedLoop)
    assert sorted(closed.level.load.turns) == [0, 1, 1, 2]


def test_replay(tmp_path: Path) -> None:
    """Times, or times and sources; as text, or as numpy's file."""
    path = tmp_path / "times.txt"
    path.write_text("# a comment\n0.5\n0.75\n2\n")
    replay = schedule_of("--replay", str(path), "--sources", "2")
    assert isinstance(replay, Replay)
    assert (replay.times_s.tolist(), replay.sources.tolist()) == ([0.5, 0.75, 2], [0, 1, 0])
    np.save(tmp_path / "times.npy", [[0.0, 1], [1.0, 0]])
    replay = schedule_of("--replay", str(tmp_path / "times.npy"), "--sources", "2")
    assert (replay.times_s.tolist(), replay.sources.tolist()) == ([0, 1], [1, 0])
    (only,) = planned("--replay", str(path))
    # A recording is sent whole, and from its start.
    assert (only.level.warm_up_s, only.level.duration_s) == (0, None)


def test_request_intervals(tmp_path: Path) -> None:
    """Pauses in microseconds, over and over."""
    path = tmp_path / "pauses"
    path.write_text("1000\n3000\n")
    replay = schedule_of("--request-intervals", str(path))
    assert (replay.times_s.tolist(), replay.period_s) == ([0.001, 0.004], 0.004)
    assert replay.rate == 500


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("", "--replay"),
        ("1\n0.5\n", "--replay"),
        ("-1\n", "--replay"),
        ("0 5\n", "--replay"),
        ("abc\n", "--replay"),
        ("nan\n", "--replay"),
        ("0 1 2\n", "--replay"),
        ("-4\n", "--request-intervals"),
        ("0\n", "--request-intervals"),
    ],
)
def test_bad_files(text: str, flag: str, tmp_path: Path) -> None:
    """A file that is no schedule is refused by its name."""
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match="bad.txt"):
        planned(flag, str(path))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PK\3\4", id="an archive"),
        pytest.param(b"\x93NUMPY\1\0\2\0{\n", id="a header that Python cannot read"),
        pytest.param(_npy(np.array([b"a"])), id="text"),
        pytest.param(_npy(np.array([1j])), id="complex"),
        pytest.param(_npy(np.zeros(1)).replace(b"(1,)", b"(9" + b"9" * 15 + b",)"), id="huge"),
    ],
)
def test_bad_arrays(data: bytes, tmp_path: Path) -> None:
    """Whatever numpy makes of a file, a run that cannot begin says which file is wrong."""
    path = tmp_path / "bad.npy"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="bad.npy"):
        planned("--replay", str(path))


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("x:1x3x224x224", [("x", (1, 3, 224, 224))]),
        ("x:3,224,224", [("x", (3, 224, 224))]),
        ("a:1x3,b:4", [("a", (1, 3)), ("b", (4,))]),
        ("input:0:7", [("input:0", (7,))]),
    ],
)
def test_shapes(text: str, shapes: list[tuple[str, tuple[int, ...]]]) -> None:
    """In the notation of trtexec, and in perf_analyzer's."""
    assert parsed("--shape", text).shape == shapes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=true", True),
        ("a=0.5", 0.5),
        ("a=text", "text"),
        ('a="1"', "1"),
        ("a=b=c", "b=c"),
        ("a=[1]", "[1]"),
        ("a=", ""),
    ],
)
def test_parameters(text: str, value: object) -> None:
    """Their type is what they look like."""
    ((name, seen),) = parsed("--parameter", text).parameter
    assert (name, seen, type(seen)) == ("a", value, type(value))


def test_processes_and_connections() -> None:
    """As asked for; never more processes than callers; a caller has at most one connection."""
    one = planned("-c", "1")
    assert num_processes(one, None) == 1
    assert num_connections(one, 1, None) == 1
    assert num_processes(planned("-c", "2"), 8) == 2
    assert num_processes(planned("-r", "100"), 3) == 3
    assert num_connections(planned("-r", "100"), 3, None) == 4
    assert num_connections(planned("-c", "10"), 5, None) == 2
    assert num_connections(planned("-c", "10"), 2, 5) == 3
