"""A shared memory object as a file: opened with care, read and written by the kernel alone.

Rules
- No page of a client's is ever touched through a mapping. Whoever owns the file may cut it short at
  any time, and a touch behind its end is SIGBUS, the end of the process; a read there is short, and
  fails one request.
- What counts is what has been read: nothing is looked at in the client's memory and used later.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import threading
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from headrace.errors import RequestError, UnavailableError

FOLDER: Final = Path("/dev/shm")  # where shm_open(3) puts its objects
FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
OUT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class RegionFile:
    """One open file, shared by the regions that lie in it; closed with the last of them.

    To close takes long where nobody else has the file and it has no name: 0.2 s a GiB of pages.
    """

    is_on_device = False

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._num_holders = 1
        self._counting = threading.Lock()
        found = os.fstat(fd)
        self.identity = (found.st_dev, found.st_ino)

    @property
    def fd(self) -> int:
        """Its descriptor, for what maps it."""
        return self._fd

    @property
    def size_bytes(self) -> int:
        """How long it is now."""
        return os.fstat(self._fd).st_size

    @property
    def is_unlinked(self) -> bool:
        """Whether it has no name any more, so that nobody can open it anew."""
        return os.fstat(self._fd).st_nlink == 0

    @property
    def is_shared(self) -> bool | None:
        """Whether any process but this one has it open or mapped; None where nobody can tell.

        The kernel gives a write lease to the only opener alone, see fcntl(2). It is given back at
        once. A client that opens the file in between waits those microseconds; the signal that this
        would send here is made one that does nothing.
        """
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            return True if error.errno == errno.EAGAIN else None
        fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset` on.

        Raises:
            RequestError: The file ends before.
        """
        while view:
            try:
                num_bytes = os.preadv(self._fd, [view], offset)
            except OSError as error:
                raise _failed("read", error) from None
            if num_bytes == 0:
                raise _shorter()
            view, offset = view[num_bytes:], offset + num_bytes

    def write(self, data: memoryview | bytes, offset: int) -> None:
        """Write `data` from `offset` on; a file that is too short is left as it is.

        One that is cut short at the same moment may become as long as it was again.

        Raises:
            RequestError: The file ends before, or the machine has no memory for it.
        """
        view = memoryview(data)
        self.check(offset + len(view))
        while view:
            try:
                num_bytes = os.pwritev(self._fd, [view], offset)
            except OSError as error:
                raise _failed("written", error) from None
            view, offset = view[num_bytes:], offset + num_bytes

    def check(self, end: int) -> None:
        """Hold that the file reaches to `end`; it may be cut short at the next moment.

        Raises:
            RequestError: It does not.
        """
        if self.size_bytes < end:
            raise _shorter()

    def share(self) -> RegionFile:
        """Return itself for one more holder, who closes it as well."""
        with self._counting:
            assert self._num_holders, "a file that is closed was shared"
            self._num_holders += 1
        return self

    def close(self) -> None:
        """Let go of it, once for each holder."""
        with self._counting:
            assert self._num_holders, "a file was closed more often than it was held"
            self._num_holders -= 1
            is_last = not self._num_holders
        if is_last:
            os.close(self._fd)


def open_file(name: str, uids: Collection[int], *, folder: Path = FOLDER) -> RegionFile:
    """Open a shared memory object.

    Args:
        name: A plain name, checked (`file_name`).
        uids: Whose files are opened.
        folder: Where they lie.

    Raises:
        RequestError: There is none that may be opened; the text is the same whatever the reason,
            or it would tell which names there are.
        UnavailableError: This process has no room for another file.
    """
    with ExitStack() as undo:
        try:
            fd = os.open(folder / name, FLAGS)
            undo.callback(os.close, fd)
            found = os.fstat(fd)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in OUT_OF:
                raise UnavailableError("the server can open no more files") from None
            raise _no_such() from None
        is_plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1  # a second name hides whose
        if not is_plain or found.st_uid not in uids:
            raise _no_such()
        undo.pop_all()
    return RegionFile(fd)


def _no_such() -> RequestError:
    return RequestError(
        "the key names no shared memory that this server may open: a plain file in /dev/shm of the "
        "server's own user, or of one that the operator names with --client-shm-uid; create it "
        "before it is registered"
    )


def _shorter() -> RequestError:
    return RequestError("its memory has become shorter than it was registered")


def _failed(what: str, error: OSError) -> RequestError:
    reason = errno.errorcode.get(error.errno or 0, "unknown")
    return RequestError(f"its memory cannot be {what} ({reason})")
