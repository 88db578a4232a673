"""Writes a file so that its name never stands for half of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError


@contextmanager
def replacing(path: Path, content: Any) -> Iterator[Path]:
    """Write content beside `path`; give it that name at the end, unless an error comes between.

    Args:
        path: The file's name; one that is there is replaced.
        content: Anything with the buffer protocol.

    Yields:
        Where the content lies until then, written and flushed: to look at before it counts.

    Raises:
        ConfigError: The folder is not there, or cannot be written to.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _not_written(path, error) from error
    temporary = Path(name)
    try:
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(memoryview(content))
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_umask())  # mkstemp's own is for its owner alone
        except OSError as error:
            raise _not_written(path, error) from error
        yield temporary
        try:
            temporary.replace(path)
        except OSError as error:
            raise _not_written(path, error) from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def check_writable(path: Path) -> None:
    """Refuse a name that could not be written, before minutes are spent on its content.

    Raises:
        ConfigError: Its folder is not there or not writable, or it is itself a folder.
    """
    if path.is_dir():
        raise ConfigError("is a folder; expected the name of a file", path=str(path))
    if not path.parent.is_dir():
        raise ConfigError(f"cannot be written: there is no folder {path.parent}", path=str(path))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot be written: no right to write {path.parent}", path=str(path))


def _not_written(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot be written: {error.strerror or error}", path=str(path))


def _umask() -> int:
    """Return the process's mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
