"""Sends the log to standard error: which levels, in which format, and nothing unescaped."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from headrace.config import ServerConfig
from headrace.escape import printable
from headrace.rpc.log_settings import LogState

_TRACE_MAX_CHARS: Final = 32_768
_TRACE_MARK: Final = "  | "
"""Begins every line of a traceback, so that no line of it can pass for a message."""


class LineFormatter(logging.Formatter):
    """One line a message: time (UTC), level, logger, text; a traceback follows behind marks."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = f"{_time(record)} {record.levelname} {record.name}: {printable(_text(record))}"
        trace = _trace(record)
        if not trace:
            return line
        # Messages of exceptions may hold anything, also line breaks: they stay behind the mark too.
        marked = (_TRACE_MARK + printable(part) for part in trace.splitlines())
        return "\n".join((line, *marked))


class JsonFormatter(logging.Formatter):
    """One JSON object a message: time, level, logger, message, and exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object on one line, in ASCII."""
        entry = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": printable(_text(record)),
        }
        trace = _trace(record)
        if trace:
            entry["exception"] = trace
        return json.dumps(entry)


class LevelFilter(logging.Filter):
    """Lets through the levels that are switched on, each on its own, as Triton does."""

    def __init__(self, *, info: bool, warning: bool, error: bool) -> None:
        super().__init__()
        self._is_on = {logging.INFO: info, logging.WARNING: warning, logging.ERROR: error}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is written; levels in between count as the one below."""
        below = [level for level in self._is_on if level <= record.levelno]
        return self._is_on[max(below)] if below else True  # debug is decided by --log-verbose


class LogSwitch:
    """What is logged: set at the start, and changed by whoever may while the server runs.

    Without debug messages, libraries are heard from a warning on, headrace from an information on.
    """

    def __init__(self, state: LogState, stream: TextIO) -> None:
        """Prepare; `install` makes it take effect."""
        self._state = state
        self._handler = logging.StreamHandler(stream)

    def install(self) -> None:
        """Replace the root logger's handlers by this one."""
        root = logging.getLogger()
        for former in list(root.handlers):
            root.removeHandler(former)
        root.addHandler(self._handler)
        logging.captureWarnings(capture=True)
        self.change(self._state)

    def read(self) -> LogState:
        """Return what is logged now."""
        return self._state

    def change(self, state: LogState) -> None:
        """Log that from now on."""
        handler = self._handler
        handler.setFormatter(JsonFormatter() if state.format == "json" else LineFormatter())
        wanted = LevelFilter(info=state.info, warning=state.warning, error=state.error)
        for former in list(handler.filters):
            handler.removeFilter(former)
        handler.addFilter(wanted)
        logging.getLogger().setLevel(logging.DEBUG if state.verbose > 1 else logging.WARNING)
        ours = logging.DEBUG if state.verbose else logging.INFO
        logging.getLogger("headrace").setLevel(ours)
        self._state = state


def set_up_logging(config: ServerConfig, stream: TextIO | None = None) -> LogSwitch:
    """Replace the root logger's handlers by one that writes what the configuration asks for."""
    state = LogState(
        info=config.log_info,
        warning=config.log_warning,
        error=config.log_error,
        verbose=config.log_verbose,
        format=config.log_format,
    )
    switch = LogSwitch(state, sys.stderr if stream is None else stream)
    switch.install()
    return switch


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 (a wrong format string must not hide what was to be said)
        return f"{record.msg} {record.args!r}"


def _trace(record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(logging.Formatter().formatException(record.exc_info))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)[-_TRACE_MAX_CHARS:]  # the end says what went wrong
