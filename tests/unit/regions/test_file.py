"""Files that clients own are opened with care, and cutting them short hurts one request."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, RequestError
from headrace.regions.file import open_file
from helpers.shared_files import SharedFiles, is_open

ME = {os.geteuid()}
HOLDER = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(fd, 0)
os.close(fd)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def files(tmp_path: Path) -> SharedFiles:
    return SharedFiles(tmp_path)


def test_what_is_read_and_written(files: SharedFiles) -> None:
    """At offsets, and no byte beside."""
    path = files.make("r", bytes(range(100)))
    file = files.open("r")
    room = bytearray(12)
    file.read_into(memoryview(room)[1:11], 50)
    assert room == bytes([0, *range(50, 60), 0])
    file.write(memoryview(b"abc"), 97)
    file.write(b"", 100)
    assert path.read_bytes() == bytes(range(97)) + b"abc"
    file.close()


def test_a_file_that_is_cut_short_fails_what_wants_more(files: SharedFiles) -> None:
    """No signal, nothing written, and the file does not grow again."""
    path = files.make("r", bytes(8192))
    file = files.open("r")
    os.truncate(path, 4096)
    room = bytearray(100)
    file.read_into(memoryview(room), 3996)
    for offset in (3997, 8192, 1 << 62):
        with pytest.raises(RequestError, match="has become shorter"):
            file.read_into(memoryview(room), offset)
        with pytest.raises(RequestError, match="has become shorter"):
            file.write(bytes(100), offset)
    assert path.stat().st_size == 4096
    file.close()


def test_a_system_without_memory_fails_one_request(
    files: SharedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file in a full folder is written in vain."""
    files.make("r", bytes(100))
    file = files.open("r")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(RequestError, match=r"cannot be written \(ENOSPC\)"):
        file.write(bytes(10), 0)
    file.close()


def test_what_is_no_plain_file_of_the_user_is_not_opened(files: SharedFiles) -> None:
    """All refusals sound alike, or they would tell which names there are."""
    path = files.make("plain", b"x")
    files.make("doubled", b"x")
    os.link(files.folder / "doubled", files.folder / "again")
    (files.folder / "link").symlink_to(path)
    (files.folder / "folder").mkdir()
    os.mkfifo(files.folder / "fifo")
    texts = set()
    for name in ("link", "folder", "fifo", "doubled", "again", "nothing", "n" * 300):
        with pytest.raises(RequestError) as caught:
            open_file(name, ME, folder=files.folder)
        texts.add(str(caught.value))
    with pytest.raises(RequestError) as caught:
        open_file("plain", {os.geteuid() + 1}, folder=files.folder)
    assert {str(caught.value)} == texts
    open_file("plain", ME, folder=files.folder).close()


def test_a_refusal_leaves_no_file_open(files: SharedFiles) -> None:
    """However often somebody tries."""
    os.mkfifo(files.folder / "fifo")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        with pytest.raises(RequestError):
            open_file("fifo", ME, folder=files.folder)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_process_without_descriptors_says_so(
    files: SharedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is no fault of the caller's."""

    def none_left(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", none_left)
    with pytest.raises(HeadraceError, match="can open no more files") as caught:
        open_file("r", ME, folder=files.folder)
    assert not isinstance(caught.value, RequestError)


def test_who_else_has_it_open_is_known(files: SharedFiles) -> None:
    """As long as a process has it mapped, its descriptor closed; not when that was killed."""
    path = files.make("r", bytes(4096))
    file = files.open("r")
    seen = [file.is_shared]
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        seen.append(file.is_shared)
        path.unlink()
        seen.append(file.is_shared)
        holder.kill()
        holder.wait(10)
    seen.append(file.is_shared)
    assert seen == [False, True, True, False]
    assert file.is_unlinked
    file.close()


def test_where_the_kernel_does_not_tell_nobody_knows(
    files: SharedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's file without the capability, or a system without leases."""
    files.make("r", b"x")
    file = files.open("r")

    def refuse(*_: object) -> int:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert file.is_shared is None
    file.close()


def test_it_is_open_for_as_long_as_anybody_holds_it(files: SharedFiles) -> None:
    """The last one closes it; once more is a bug."""
    files.make("r", b"x")
    file = files.open("r")
    assert file.share() is file
    file.close()
    assert is_open(file)
    file.close()
    assert not is_open(file)
    with pytest.raises(AssertionError):
        file.close()
