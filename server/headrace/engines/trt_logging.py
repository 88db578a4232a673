"""What TensorRT has to say: its log goes to ours, its errors are kept until someone asks.

TensorRT calls a logger and an error recorder from any of its threads; with a recorder attached,
errors go there and not to the log. A failing call is followed by echoes of its failure, so the
first text is the one that tells.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

MAX_ERRORS = 32
"""Kept until asked for; the first one is what matters, and a broken engine must not fill memory."""

log = logging.getLogger(__name__)


class ErrorTexts:
    """Errors in the order they were reported; from any thread, bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[tuple[Any, str]] = []  # (TensorRT's code or None, text)
        self.has_overflowed = False

    def add(self, code: Any, text: str) -> None:
        """Keep an error, or note that there was no room."""
        with self._lock:
            if len(self._entries) < MAX_ERRORS:
                self._entries.append((code, text))
            else:
                self.has_overflowed = True

    @property
    def is_empty(self) -> bool:
        """True when nothing was reported since the last look; takes no lock."""
        return not self._entries

    def entries(self) -> list[tuple[Any, str]]:
        """Return what is kept, oldest first."""
        with self._lock:
            return list(self._entries)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self.has_overflowed = False

    def take_first(self) -> str:
        """Return the first text, or "" when there is none, and forget everything."""
        with self._lock:
            texts = [" ".join(text.split()) for _code, text in self._entries]  # one line each
            self._entries.clear()
            self.has_overflowed = False
        for echo in texts[1:]:
            log.debug("TensorRT also said: %s", echo)
        return texts[0] if texts else ""


def make_logger(trt: Any, source: str, texts: ErrorTexts) -> Any:
    """Make an `ILogger` that writes to our log and keeps errors.

    Args:
        trt: The TensorRT module: its classes are its own, so each module has its own loggers.
        source: What is being loaded; put in front of every line.
        texts: Where errors are kept.
    """
    severity = trt.ILogger.Severity
    levels = {
        severity.INTERNAL_ERROR: logging.ERROR,
        severity.ERROR: logging.ERROR,
        severity.WARNING: logging.WARNING,
        severity.INFO: logging.INFO,
        severity.VERBOSE: logging.DEBUG,
    }

    def write(_self: Any, level: Any, message: str) -> None:
        number = levels.get(level, logging.ERROR)
        if number >= logging.ERROR:
            texts.add(None, message)
        log.log(number, "%s: %s", source, message)

    return type("Logger", (trt.ILogger,), {"log": write})()


def make_recorder(trt: Any, texts: ErrorTexts) -> Any:
    """Make an `IErrorRecorder` that keeps errors in `texts`."""

    def report_error(_self: Any, code: Any, text: str) -> bool:
        texts.add(code, text)
        return True  # as in NVIDIA's samples: every error ends the call that made it

    def num_errors(_self: Any) -> int:
        return len(texts.entries())

    members = {
        "report_error": report_error,
        "num_errors": num_errors,
        "get_num_errors": num_errors,  # the name that TensorRT asks by
        "get_error_code": lambda _self, index: texts.entries()[index][0],
        "get_error_desc": lambda _self, index: texts.entries()[index][1],
        "has_overflowed": lambda _self: texts.has_overflowed,
        "clear": lambda _self: texts.clear(),
    }
    return type("ErrorRecorder", (trt.IErrorRecorder,), members)()
