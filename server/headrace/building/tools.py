"""A builder of TensorRT with its log.

TensorRT keeps the first logger that a builder of the process was made with, and uses it to the end;
so it is made once and never freed. There is no error recorder: what a builder makes inherits it
without keeping it alive, and crashes when it is freed in between.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import Any

from headrace.engines.trt_logging import ErrorTexts, make_logger
from headrace.engines.trt_modules import Backend, Capabilities

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tools:
    """What every step of a build needs."""

    backend: Backend
    builder: Any
    logger: Any
    errors: ErrorTexts

    @property
    def trt(self) -> Any:
        """The TensorRT module."""
        return self.backend.trt

    @property
    def can(self) -> Capabilities:
        """Which TensorRT it is."""
        return self.backend.can

    def reason(self) -> str:
        """Return the first error since it was last asked for one."""
        return self.errors.take_first() or "it gave no reason"


def open_tools(backend: Backend) -> Tools:
    """Make a builder; one build at a time in a process, since they share their errors."""
    logger, errors = _log_of(backend.trt)
    errors.clear()
    if backend.can.has_plugins and not backend.trt.init_libnvinfer_plugins(logger, ""):
        log.warning("TensorRT's plugins cannot be registered: %s", errors.take_first())
    return Tools(backend, backend.trt.Builder(logger), logger, errors)


@cache
def _log_of(trt: Any) -> tuple[Any, ErrorTexts]:
    errors = ErrorTexts()
    return make_logger(trt, "builder", errors), errors
