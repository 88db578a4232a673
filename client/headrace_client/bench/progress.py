"""One line on standard error that tells how a level is going."""

from __future__ import annotations

from typing import TextIO

import numpy as np

from headrace_client.bench.histogram import Histogram
from headrace_client.bench.record import OK, Rows
from headrace_client.bench.summary import CODE_NAMES

_EVERY_S = 1.0
_EVERY_S_IN_LOG = 5.0  # where lines stay, as in a file


class Progress:
    """Shows the last second's figures; on a terminal in place, elsewhere line by line.

    Args:
        stream: Where to; None: nowhere.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        self._text = ""
        self._start_s = 0.0
        self._duration_s: float | None = None
        self._shown_s = 0.0
        self._clear()

    def _clear(self) -> None:
        self._latency = Histogram()
        self._codes = np.zeros(32, np.int64)

    def begin(self, text: str, start_s: float, duration_s: float | None) -> None:
        """Begin a level whose measurement starts then."""
        self._text, self._start_s, self._duration_s = text, start_s, duration_s
        self._shown_s = start_s
        self._clear()
        if self._stream is not None and not self._is_terminal:
            print(f"{text} …", file=self._stream, flush=True)

    def add(self, rows: Rows) -> None:
        """Take in what ended."""
        if self._stream is not None:
            self._latency.add((rows.done_s - rows.due_s)[rows.codes == OK])
            self._codes += np.bincount(rows.codes, minlength=len(self._codes))

    def show(self, now_s: float) -> None:
        """Show a line when it is time for one."""
        every_s = _EVERY_S if self._is_terminal else _EVERY_S_IN_LOG
        since_s = now_s - self._shown_s
        if self._stream is None or since_s < every_s:
            return
        line = self.line(now_s, since_s)
        if self._is_terminal:
            print(f"\r\x1b[K{self._text}: {line}", end="", file=self._stream, flush=True)
        else:
            print(f"  {line}", file=self._stream, flush=True)
        self._shown_s = now_s
        self._clear()

    def line(self, now_s: float, since_s: float) -> str:
        """Return the figures of the last `since_s` seconds."""
        time = f"{max(0.0, now_s - self._start_s):.0f}"
        time += " s" if self._duration_s is None else f" of {self._duration_s:g} s"
        parts = [time, f"{self._codes[OK] / since_s:,.0f}/s"]
        if self._latency.count:
            p50_s, p99_s = self._latency.quantiles_s((0.5, 0.99))
            parts.append(f"p50 {p50_s * 1e3:.3g} ms, p99 {p99_s * 1e3:.3g} ms")
        parts += [
            f"{CODE_NAMES[code]} {self._codes[code] / since_s:,.0f}/s"
            for code in np.flatnonzero(self._codes).tolist()
            if code != OK
        ]
        return "  ".join(parts)

    def end(self) -> None:
        """Leave the line."""
        if self._stream is not None and self._is_terminal:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
