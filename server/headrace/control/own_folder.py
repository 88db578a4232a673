"""A private folder of this process in the temporary directory, and what dead ones left there.

A process that is killed, or told twice to end, removes nothing. Each holds a lock on its folder for
as long as it lives, whatever ends it; so the next server can tell which folders are nobody's.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path

log = logging.getLogger(__name__)

MAX_TRIES = 8  # another server may take a new folder for a dead one's before it is locked
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OwnFolder:
    """The folder, open to this user alone, until `close`."""

    def __init__(self, prefix: str) -> None:
        """Make it.

        Raises:
            OSError: There is no directory to make it in.
        """
        for _ in range(MAX_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=prefix))  # 0700
            lock = _lock(self.path)
            if lock is not None and self.path.exists():  # nobody takes it away from here on
                self._lock = lock
                return
            if lock is not None:
                os.close(lock)
        raise OSError(f"new folders in {tempfile.gettempdir()} do not stay")

    def close(self) -> None:
        """Remove it with all that is in it; a second call does nothing."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)


def remove_dead(prefix: str) -> int:
    """Remove this user's folders with such names whose processes are gone; return how many."""
    num_removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            found = path.lstat()
        except OSError:
            continue  # gone meanwhile
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        lock = _lock(path) if is_ours else None
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
            num_removed += 1
    if num_removed:
        log.info("removed %d folders that servers left when they were killed", num_removed)
    return num_removed


def _lock(path: Path) -> int | None:
    """Return a lock on a folder, held until it is closed; None when another process has it."""
    try:
        folder = os.open(path, _FLAGS)
    except OSError:
        return None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(folder)
        return None
    return folder
