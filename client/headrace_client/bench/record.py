"""How requests ended: what a worker writes down, and what it sends to the process that sums up."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

OK = 0
# Beside gRPC's codes, which end at 16:
DROPPED = 17  # due, and not sent: too many were in flight, or it was too late already
UNFINISHED = 18  # in flight when the run was broken off
NUM_CODES = 19

MAX_TEXTS = 20  # kinds of error texts that are told apart in one report
_VARYING = re.compile(r"\d+(?:\.\d+)?|0x[0-9a-f]+")


def text_class(text: str) -> str:
    """Return an error's text with all its numbers left out, so that equal errors look equal."""
    first = text.partition("\n")[0]
    return _VARYING.sub("…", first)[:300]


@dataclass(frozen=True)
class Rows:
    """Requests that ended, column by column, and what came beside them.

    Attributes:
        due_s: When each should have been sent, float64 (requests,), on the monotonic clock.
        sent_s: When it was sent.
        done_s: When it ended.
        codes: gRPC's status, or one of those above, uint8.
        sources: Which source it was of, int32.
        lags_s: How late the event loop was whenever it was probed in the measurement, float64.
        texts: How often requests ended with this code and class of text.
        reply_bytes: Length of all replies together.
    """

    due_s: NDArray[np.float64]
    sent_s: NDArray[np.float64]
    done_s: NDArray[np.float64]
    codes: NDArray[np.uint8]
    sources: NDArray[np.int32]
    lags_s: NDArray[np.float64]
    texts: Counter[tuple[int, str]] = field(default_factory=Counter)
    reply_bytes: int = 0


class Record:
    """Collects rows in a worker; arrays of the standard library take 30 ns a value, numpy's 100."""

    def __init__(self) -> None:
        self._texts_seen: dict[str, str] = {}
        self._clear()

    def _clear(self) -> None:
        self._due_s, self._sent_s, self._done_s = array("d"), array("d"), array("d")
        self._codes, self._sources = array("B"), array("i")
        self._lags_s = array("d")
        self._texts: Counter[tuple[int, str]] = Counter()
        self._reply_bytes = 0

    def ended(self, due_s: float, sent_s: float, done_s: float, code: int, source: int) -> None:
        """Write down one request."""
        self._due_s.append(due_s)
        self._sent_s.append(sent_s)
        self._done_s.append(done_s)
        self._codes.append(code)
        self._sources.append(source)

    def replied(self, num_bytes: int) -> None:
        """Count the bytes of a reply."""
        self._reply_bytes += num_bytes

    def said(self, code: int, text: str) -> None:
        """Count the text of an error."""
        kind = self._texts_seen.get(text)
        if kind is None:
            kind = text_class(text)
            if len(self._texts_seen) < 1000:  # texts with a number in each are all different
                self._texts_seen[text] = kind
        self._texts[code, kind] += 1

    def lagged(self, lag_s: float) -> None:
        """Write down how late the event loop was."""
        self._lags_s.append(max(0.0, lag_s))

    def take(self) -> Rows | None:
        """Return what was written since the last time, None when that is nothing."""
        if not self._due_s and not self._lags_s:
            return None
        rows = Rows(
            due_s=_array(self._due_s, "f8"),
            sent_s=_array(self._sent_s, "f8"),
            done_s=_array(self._done_s, "f8"),
            codes=_array(self._codes, "u1"),
            sources=_array(self._sources, "i4"),
            lags_s=_array(self._lags_s, "f8"),
            texts=self._texts,
            reply_bytes=self._reply_bytes,
        )
        self._clear()
        return rows


def _array(column: array[Any], dtype: str) -> NDArray[Any]:
    return np.frombuffer(column, dtype) if column else np.empty(0, dtype)
