"""What of TensorRT's log `headrace build` shows: warnings, or more when asked to."""

from __future__ import annotations

import logging
import sys


def set_up_log(verbosity: int) -> None:
    """Send the log to stderr.

    Args:
        verbosity: 0 shows warnings: errors come as one text when the build fails. 1 shows errors
            and what TensorRT tells of its work, 2 everything.
    """
    out = logging.StreamHandler(sys.stderr)
    out.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    if not verbosity:
        out.addFilter(lambda record: record.levelno < logging.ERROR)
    ours = logging.getLogger("headrace")
    ours.handlers[:] = [out]
    ours.propagate = False
    ours.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
