"""`headrace build` reads its flags, shows how far it is, and ends with the right code."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from headrace.cli import main
from headrace.cli.build_log import set_up_log
from headrace.cli.build_progress import shown


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    ours = logging.getLogger("headrace")
    before = ours.handlers[:], ours.propagate, ours.level
    yield
    ours.handlers[:], ours.propagate, ours.level = before


def build(*args: str) -> Result:
    return CliRunner().invoke(main, ["build", "model.onnx", *args])


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--min", "x"), "--min 'x': expected name:1x3x224x224"),
        (("--min=x:1", "--opt=x:4", "--opt=x:8"), "give all equally often"),
        (("--workspace", "4"), "expected a number with a unit, such as 512M or 4G"),
        (("--backend", "other"), "'other' is not one of"),
        (("--max-aux-streams", "-1"), "-1 is not in the range"),
    ],
)
def test_wrong_flags_end_with_2(args: tuple[str, ...], told: str) -> None:
    """A flag that cannot be read is told before anything is opened."""
    result = build(*args)
    assert result.exit_code == 2, result.output
    assert told in result.output


def test_a_model_that_is_not_there_ends_with_1() -> None:
    """Where no TensorRT is, that is told; where one is, that there is no file."""
    result = build("--max=x:1")
    assert result.exit_code == 1
    assert re.search(r"install the Python package|is not there", result.output)


def test_the_help_gives_the_reason_for_no_auxiliary_streams() -> None:
    """The default that differs from TensorRT's own is explained where it can be changed."""
    text = " ".join(CliRunner().invoke(main, ["build", "--help"]).output.split())
    assert "0, because slots fill the GPU already" in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_phases(stream: io.StringIO) -> None:
    with shown(stream) as listener:
        listener.started("Building [engine]", None, 3)
        listener.started("inner", "Building [engine]", 2)
        listener.stepped("inner", 0)
        listener.finished("inner")
        listener.stepped("Building [engine]", 0)
        listener.stepped("Building [engine]", 1)
        listener.finished("Building [engine]")
        listener.finished("never started")


def test_a_pipe_gets_a_line_for_each_step_of_the_whole() -> None:
    """Inner phases may have thousands of steps, and are left out."""
    stream = io.StringIO()
    run_phases(stream)
    steps = [0, 1, 2]
    assert stream.getvalue().splitlines() == [f"Building [engine]: {step}/3" for step in steps]


def test_a_terminal_gets_bars_with_the_inner_phases() -> None:
    """Names are shown as they are, also where they look like markup."""
    stream = Terminal()
    run_phases(stream)
    assert "Building [engine]" in stream.getvalue()
    assert "  inner" in stream.getvalue()


@pytest.mark.parametrize(
    ("verbosity", "expected"),
    [(0, ["WARNING w"]), (1, ["INFO i", "WARNING w", "ERROR e"]), (2, None)],
)
def test_the_log_shows_warnings_or_more(
    verbosity: int, expected: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of TensorRT comes once, as the error of the command, unless all is asked for."""
    set_up_log(verbosity)
    log = logging.getLogger("headrace.engines.trt_logging")
    log.debug("d")
    log.info("i")
    log.warning("w")
    log.error("e")
    all_lines = ["DEBUG d", "INFO i", "WARNING w", "ERROR e"]
    assert capsys.readouterr().err.splitlines() == (expected or all_lines)
