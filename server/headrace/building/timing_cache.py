"""Keeps what TensorRT measured of its kernels, so that the next build need not measure it again."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from headrace.building.output import replacing
from headrace.building.tools import Tools
from headrace.errors import ConfigError

log = logging.getLogger(__name__)


def use_timing_cache(tools: Tools, config: Any, path: Path) -> bool:
    """Give a build the cache in a file, or an empty one to be written there.

    Returns:
        True when the file's content is in use: it is of this TensorRT and this GPU model.

    Raises:
        ConfigError: The file cannot be read, or TensorRT makes no cache.
    """
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=str(path)) from error
    if content and _set(config, content):
        return True
    if content:
        reason = tools.errors.take_first() or "it is of another TensorRT or another GPU"
        log.warning("%s is of no use here and will be made anew: %s", path, reason)
    if not _set(config, b""):
        raise ConfigError(f"TensorRT makes no timing cache: {tools.reason()}", path=str(path))
    return False


def _set(config: Any, content: bytes) -> bool:
    cache = config.create_timing_cache(content)
    # Never with a mismatch ignored: figures of another GPU choose the wrong kernels.
    return cache is not None and bool(config.set_timing_cache(cache, False))


def keep_timing_cache(config: Any, path: Path) -> None:
    """Write the cache of a finished build; what was built does not depend on whether it can be."""
    try:
        with replacing(path, config.get_timing_cache().serialize()):
            pass
    except ConfigError as error:
        log.warning("the timing cache is lost: %s", error)
