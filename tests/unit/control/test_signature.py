"""What a model looks like on disk: every change shows, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.control.signature import Signature, read_signature
from helpers.model_repository import write_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(
        tmp_path,
        "m",
        "max_batch_size: 4",
        versions=(1, 2),
        extra={"labels.txt": b"a\nb", "1/weights.bin": b"w", "warmup/x": b"x"},
    )


def changed(before: Signature, folder: Path) -> set[int]:
    """The versions that would be loaded anew."""
    return {1, 2} - read_signature(folder).unchanged(before, {1, 2})


def test_nothing_changes_by_itself(folder: Path) -> None:
    """Neither by looking, nor by who last looked, nor by links to the folder."""
    before = read_signature(folder)
    link = folder.with_name("link")
    link.symlink_to(folder)
    assert read_signature(link) == before
    assert changed(before, folder) == set()
    assert before.size_bytes(1) == len(b"\x08\x08") + len(b"w")


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("1/model.onnx", {1}),
        ("2/model.onnx", {2}),
        ("1/weights.bin", {1}),
        ("1/new.bin", {1}),
        ("2/deep/er/x.bin", {2}),
        ("config.pbtxt", {1, 2}),
        ("labels.txt", {1, 2}),
        ("warmup/x", {1, 2}),
        ("new.txt", {1, 2}),
    ],
)
def test_a_file_that_is_written_concerns_its_version_or_all(
    folder: Path, name: str, versions: set[int]
) -> None:
    """A version's own files are its own; the rest is everybody's."""
    before = read_signature(folder)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"something of another size")
    assert changed(before, folder) == versions


def test_the_same_size_at_another_time_is_a_change(folder: Path) -> None:
    """As far as the time of modification tells."""
    before = read_signature(folder)
    path = folder / "1/model.onnx"
    stat = path.stat()
    path.write_bytes(bytes(stat.st_size))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert changed(before, folder) == {1}


def test_versions_come_and_go(folder: Path) -> None:
    """One that is new has nothing to be compared with."""
    before = read_signature(folder)
    (folder / "3").mkdir()
    (folder / "3/model.onnx").write_bytes(b"\x08")
    now = read_signature(folder)
    assert now.unchanged(before, {1, 2, 3}) == {1, 2}
    assert now.unchanged(None, {1, 2, 3}) == set()
    (folder / "1/model.onnx").unlink()
    assert changed(before, folder) == {1}


def test_what_mounts_keep_beside_is_no_part_of_a_model(folder: Path) -> None:
    """Kubernetes has its data in folders that begin with dots, and links to them."""
    data = folder / "..2026_01_01"
    data.mkdir()
    (data / "model.onnx").write_bytes(b"\x08\x08\x08")
    before = read_signature(folder)
    (data / "other").write_bytes(b"x")
    assert changed(before, folder) == set()
    (folder / "1/model.onnx").unlink()
    (folder / "1/model.onnx").symlink_to(data / "model.onnx")
    assert changed(before, folder) == {1}


def test_a_loop_of_links_ends(folder: Path) -> None:
    """There is a depth beyond which nothing is looked into."""
    (folder / "1/loop").symlink_to(folder)
    assert read_signature(folder) == read_signature(folder)


def test_what_cannot_be_read_is_no_error(folder: Path) -> None:
    """The load will say what is wrong."""
    (folder / "1/gone").symlink_to(folder / "nowhere")
    assert changed(read_signature(folder), folder) == set()
    assert read_signature(folder / "nowhere") == Signature()


def test_a_model_that_is_one_file(tmp_path: Path) -> None:
    """Is version 1."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08")
    before = read_signature(path)
    (tmp_path / "other.onnx").write_bytes(b"x")
    assert changed(before, path) == {2}  # there is none
    path.write_bytes(b"\x08\x08")
    assert changed(before, path) == {1, 2}
