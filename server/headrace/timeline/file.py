"""The trace file: whole and valid JSON after every write, whatever ends the process afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

TAIL: Final = b"\n]}\n"


class TraceFile:
    """A growing trace. Each write puts the closing brackets anew, in the same call."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        """Begin the file, in place of one that is there.

        Args:
            path: Where.
            about: What the trace says of itself.

        Raises:
            OSError: It cannot be written.
        """
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        head = json.dumps({"displayTimeUnit": "ms", "otherData": about})
        self._end = 0  # where the tail begins
        self._separator = b"\n"
        self._put(f'{head[:-1]}, "traceEvents": ['.encode())

    @property
    def size_bytes(self) -> int:
        """How large the file is."""
        return self._end + len(TAIL)

    def add(self, events: Iterable[dict[str, Any]]) -> None:
        """Write events, all of them or, when the disk is full, none.

        Raises:
            OSError: They cannot be written.
        """
        lines = b",\n".join(json.dumps(event, separators=(",", ":")).encode() for event in events)
        if lines:
            self._put(self._separator + lines)
            self._separator = b",\n"

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _put(self, data: bytes) -> None:
        written = os.pwrite(self._descriptor, data + TAIL, self._end)
        if written < len(data) + len(TAIL):
            os.pwrite(self._descriptor, TAIL, self._end)
            os.ftruncate(self._descriptor, self._end + len(TAIL))
            raise OSError(f"only {written} of {len(data)} bytes could be written")
        self._end += len(data)
