"""The log: levels each on their own, one line a message, and nothing unescaped in it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import ServerConfig
from headrace.escape import MAX_CHARS, printable
from headrace.logging_setup import JsonFormatter, LineFormatter, set_up_logging

EVIL = 'name\n2026-01-01T00:00:00.000Z ERROR headrace: forged\x1b[31m\x9b\r\u202egnp.\u2028"\udc80'


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("headrace")
    before = list(root.handlers), root.level, ours.level
    yield io.StringIO()
    root.handlers[:], root.level, ours.level = before[0], before[1], before[2]
    logging.captureWarnings(capture=False)


def log_all(logger: str) -> None:
    log = logging.getLogger(logger)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        log.log(level, "message at %d", level)


def levels(stream: io.StringIO) -> list[str]:
    return [line.split()[1] for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("settings", "ours", "theirs"),
    [
        ({}, "INFO WARNING ERROR CRITICAL", "WARNING ERROR CRITICAL"),
        ({"log_verbose": 1}, "DEBUG INFO WARNING ERROR CRITICAL", "WARNING ERROR CRITICAL"),
        (
            {"log_verbose": 2},
            "DEBUG INFO WARNING ERROR CRITICAL",
            "DEBUG INFO WARNING ERROR CRITICAL",
        ),
        ({"log_info": False}, "WARNING ERROR CRITICAL", "WARNING ERROR CRITICAL"),
        ({"log_warning": False}, "INFO ERROR CRITICAL", "ERROR CRITICAL"),
        ({"log_error": False}, "INFO WARNING", "WARNING"),
        ({"log_info": False, "log_warning": False, "log_error": False}, "", ""),
    ],
)
def test_levels(stream: io.StringIO, settings: dict[str, bool], ours: str, theirs: str) -> None:
    """Each level is switched by its own flag; libraries speak from warnings on."""
    set_up_logging(ServerConfig(**settings), stream)  # type: ignore[arg-type]
    log_all("headrace.rpc")
    assert levels(stream) == ours.split()
    stream.truncate(0)
    stream.seek(0)
    log_all("grpc")
    assert levels(stream) == theirs.split()


def test_setting_up_twice_writes_once(stream: io.StringIO) -> None:
    """The handlers of before are gone."""
    set_up_logging(ServerConfig(), stream)
    set_up_logging(ServerConfig(), stream)
    logging.getLogger("headrace").warning("once")
    assert len(stream.getvalue().splitlines()) == 1


def test_a_client_cannot_forge_a_line(stream: io.StringIO) -> None:
    """Line breaks, terminal escapes and directional marks of a name arrive escaped."""
    set_up_logging(ServerConfig(), stream)
    logging.getLogger("headrace.rpc").warning("unknown model %s", EVIL)
    text = stream.getvalue()
    assert len(text.splitlines()) == 1
    assert text[:-1].isprintable()
    assert r"name\n2026-01-01" in text
    assert r"\x1b[31m\x9b\r\u202egnp.\u2028" in text


def test_a_client_cannot_forge_a_line_by_way_of_an_exception(stream: io.StringIO) -> None:
    """Every line of a traceback stands behind a mark, also those that the client wrote."""
    set_up_logging(ServerConfig(), stream)
    try:
        raise ValueError(EVIL)
    except ValueError:
        logging.getLogger("headrace.rpc").exception("failed on %s", EVIL)
    first, *rest = stream.getvalue().rstrip("\n").split("\n")
    assert " ERROR headrace.rpc: failed on name" in first
    assert len(rest) > 3
    assert all(line.startswith("  | ") for line in rest)
    assert all(line.isprintable() for line in rest)
    assert any("forged" in line for line in rest)


def test_json_is_one_object_a_line(stream: io.StringIO) -> None:
    """Collectors get ASCII lines that parse, with the traceback as a field."""
    set_up_logging(ServerConfig(log_format="json"), stream)
    try:
        raise ValueError(EVIL)
    except ValueError:
        logging.getLogger("headrace.rpc").exception("failed on %s", EVIL)
    logging.getLogger("headrace").info("fine")
    failed, fine = stream.getvalue().splitlines()
    assert failed.isascii()
    entry = json.loads(failed)
    assert entry["level"] == "ERROR"
    assert entry["logger"] == "headrace.rpc"
    assert entry["message"].startswith(r"failed on name\n2026")
    assert "ValueError" in entry["exception"]
    assert "exception" not in json.loads(fine)
    assert json.loads(fine)["time"].endswith("Z")


@given(st.text())
def test_any_message_is_one_printable_line(text: str) -> None:
    """Whatever is logged, in a message, as an argument or in an exception, stays in its place."""
    error = ValueError(text)
    record = logging.LogRecord(
        "headrace", logging.ERROR, "f.py", 1, "%s", (text,), (ValueError, error, None)
    )
    first, *rest = LineFormatter().format(record).split("\n")
    assert first.isprintable()
    assert all(line.startswith("  | ") and line.isprintable() for line in rest)
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert line.isprintable()
    json.loads(line)


def test_a_wrong_format_string_still_says_something() -> None:
    """A logging call with a wrong number of arguments is no silence and no crash."""
    record = logging.LogRecord("headrace", logging.INFO, "f.py", 1, "%d and %d", ("x\n",), None)
    assert r"%d and %d ('x\n',)" in LineFormatter().format(record)


@given(st.text(max_size=200))
def test_printable_keeps_what_is_printable(text: str) -> None:
    """Printable text is unchanged, and the rest is escaped as Python itself writes it."""
    shown = printable(text)
    assert shown.isprintable()
    if text.isprintable():
        assert shown == text
    expected = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    assert shown == expected


def test_printable_is_bounded() -> None:
    """A name of a megabyte takes one line's worth and says how much more there was."""
    shown = printable("a" * 1_000_000)
    assert len(shown) < MAX_CHARS + 40
    assert shown.endswith(f"… ({1_000_000 - MAX_CHARS} more characters)")
