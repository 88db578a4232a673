"""Tells glibc to keep large blocks instead of giving them back to the kernel after every message.

By default a freed block of some megabytes is unmapped, and the next message of that size pays for
every page again; keeping them doubled the throughput of 6 MB messages (`docs/benchmarks.md`).
"""

from __future__ import annotations

import ctypes
import logging

log = logging.getLogger(__name__)

# <malloc.h>
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3

KEEP_BYTES = 1 << 30  # anything smaller comes from the heap and stays there
OLD_LIMIT_BYTES = 32 << 20  # the most that glibc before 2.35 takes as M_MMAP_THRESHOLD
TOP_PAD_BYTES = 64 << 20


def keep_large_blocks() -> bool:
    """Set the thresholds for this process; False where the C library has no mallopt."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        log.debug("no mallopt here: large messages will cost page faults")
        return False
    mallopt(M_MMAP_THRESHOLD, OLD_LIMIT_BYTES)
    mallopt(M_MMAP_THRESHOLD, KEEP_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEEP_BYTES)
    return bool(mallopt(M_TOP_PAD, TOP_PAD_BYTES))
