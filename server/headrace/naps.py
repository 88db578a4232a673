"""Tells Linux to end a thread's short sleeps when asked to, not up to 50 us later.

The kernel may put off the timers of ordinary threads to save wake-ups (PR_SET_TIMERSLACK in
prctl(2)); for naps of tens of microseconds that slack is most of their length.
"""

from __future__ import annotations

import ctypes
import logging

log = logging.getLogger(__name__)

PR_SET_TIMERSLACK = 29  # <linux/prctl.h>
SLACK_NS = 1


def end_naps_in_time() -> bool:
    """Set it for the calling thread; False where the system has no such thing."""
    try:
        is_set = bool(ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        is_set = False
    if not is_set:
        log.debug("no timer slack to set here: naps end some 50 us late")
    return is_set
