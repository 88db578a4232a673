"""Counts what was looked up in the response cache for one model version."""

from __future__ import annotations

from threading import Lock

from headrace.metrics.statistics import Tally


class CacheTally:
    """Hits and misses; any thread may call any method.

    Attributes:
        is_used: The model has a cache, so that there is something to show.
    """

    def __init__(self) -> None:
        self.is_used = False
        self._lock = Lock()
        self._num_misses = 0
        self._hits_s = 0.0
        self._misses_s = 0.0

    def hit(self, took_s: float) -> None:
        """Add what a look-up took that found a reply; who counts answered requests counts it."""
        with self._lock:
            self._hits_s += took_s

    def miss(self, took_s: float) -> None:
        """Count an answered request that was looked up in vain.

        Args:
            took_s: Of the look-up, and of keeping the reply.
        """
        with self._lock:
            self._num_misses += 1
            self._misses_s += took_s

    def read(self, num_hits: int) -> tuple[Tally, Tally]:
        """Return hits, of which there are so many, and misses."""
        with self._lock:
            hits_ns, misses_ns = round(self._hits_s * 1e9), round(self._misses_s * 1e9)
            return Tally(num_hits, hits_ns), Tally(self._num_misses, misses_ns)
