"""Makes room for as many open files as connections may be open, which are files to the system."""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

_OWN_FILES: Final = 512
"""GPUs, threads, connections for metrics, files that are read: 20 with 24 models on a CPU."""


def make_room(num_connections: int) -> None:
    """Raise the process's soft limit as far as it is needed and allowed; warn when it is not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = num_connections + _OWN_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if raised > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    if raised < needed:
        log.warning(
            "this process may open %d files, but %d connections may come: allow more with "
            "`ulimit -n`, or fewer with --grpc-max-connections",
            raised,
            num_connections,
        )
