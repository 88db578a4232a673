"""Keeps grpcio from reporting callers that left as errors of the server.

A caller that leaves while its reply is being written makes grpcio log a traceback at level ERROR;
a client that is killed leaves one for each of its calls.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

GRPCIO = "grpc._cython.cygrpc"
COULD_NOT_SEND = "ExecuteBatchError"  # not public, so known by its name


class _Departures(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything through but replies that could not be sent."""
        kind = record.exc_info[0] if record.exc_info else None
        if kind is None or kind.__name__ != COULD_NOT_SEND:
            return True
        log.debug("a reply could not be sent: its caller has left")
        return False


_FILTER = _Departures()


def hush_departures() -> None:
    """Tell of callers that left at debug level only; a second call changes nothing."""
    logging.getLogger(GRPCIO).addFilter(_FILTER)
