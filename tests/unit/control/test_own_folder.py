"""A folder of this process alone, and the removal of those whose processes are gone."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import cast

import pytest

from headrace.control import own_folder
from headrace.control.own_folder import OwnFolder, remove_dead

PREFIX = "headrace-test-"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_it_is_private_and_goes_when_it_is_closed(temporary: Path) -> None:
    """With what lies in it; a second close does nothing."""
    folder = OwnFolder(PREFIX)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    (folder.path / "deep").mkdir()
    (folder.path / "deep/file").write_bytes(b"x")
    folder.close()
    folder.close()
    assert names(temporary) == set()


def test_what_a_living_process_has_stays(temporary: Path) -> None:
    """This one's too; what is named otherwise, and files, are nobody's business."""
    (temporary / "headrace-other").mkdir()
    (temporary / f"{PREFIX}file").write_bytes(b"")
    (temporary / f"{PREFIX}link").symlink_to(temporary / "headrace-other")
    folder = OwnFolder(PREFIX)
    before = names(temporary)
    assert remove_dead(PREFIX) == 0
    assert names(temporary) == before
    folder.close()


def test_what_a_killed_process_left_is_removed(temporary: Path) -> None:
    """However it was killed; while it lives it keeps its folder."""
    code = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from headrace.control.own_folder import OwnFolder\n"
        f"folder = OwnFolder({PREFIX!r}); (folder.path / 'file').touch()\n"
        "print(folder.path.name, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(temporary)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert remove_dead(PREFIX) == 0
        assert names(temporary) == {name}
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)
    assert names(temporary) == {name}
    assert remove_dead(PREFIX) == 1
    assert names(temporary) == set()


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_folder_that_is_taken_for_a_dead_one_s_is_made_anew(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    """Another server looks between the making and the lock: it has the lock, or had it already."""
    lock, taken = own_folder._lock, cast("list[Path]", [])

    def late(path: Path) -> int | None:
        if taken:
            return lock(path)
        taken.append(path)
        ours = None if is_locked else lock(path)
        path.rmdir()
        return ours

    monkeypatch.setattr(own_folder, "_lock", late)
    folder = OwnFolder(PREFIX)
    assert folder.path not in taken
    assert names(temporary) == {folder.path.name}
    assert remove_dead(PREFIX) == 0
    folder.close()
