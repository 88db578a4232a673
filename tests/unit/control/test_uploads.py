"""Model files from clients: names that lead nowhere else, a folder that others cannot enter."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.uploads import UploadBounds, Uploads
from headrace.errors import HeadraceError, RequestError, TooLargeError, UnsupportedError

BOUNDS = UploadBounds(is_allowed=True, max_files=3, max_bytes=100)
WRONG_PARTS = [
    *("", ".", "..", "...", ".hidden", "-rf", "~", "a b", "a\0b", "a\nb", "a\\b", "a:b", "a*"),
    *("$(reboot)", "`reboot`", "a;b", "a|b", "a&b", "a'b", 'a"b', "größe", "\u202egpj", "x" * 129),
]


@pytest.fixture
def uploads() -> Iterator[Uploads]:
    uploads = Uploads(BOUNDS)
    yield uploads
    uploads.close()


def put(uploads: Uploads, files: dict[str, bytes], name: str = "m") -> Path:
    uploads.check(files)
    return uploads.put(name, files)


def test_files_lie_where_a_model_has_them(uploads: Uploads) -> None:
    """Each model in a folder of its own, under its name; two of one name do not meet."""
    files = {"file:1/model.onnx": b"one", "file:labels.txt": b"a"}
    first, second = put(uploads, files), put(uploads, {"file:1/model.onnx": b"two"})
    assert first != second
    assert (first.name, second.name) == ("m", "m")
    assert {p.relative_to(first).as_posix() for p in first.rglob("*") if p.is_file()} == {
        "1/model.onnx",
        "labels.txt",
    }
    assert (second / "1/model.onnx").read_bytes() == b"two"


def test_nobody_else_can_enter(uploads: Uploads) -> None:
    """Neither the folder nor a file of it is open to group or others."""
    folder = put(uploads, {"file:1/model.onnx": b"secret weights"})
    root = folder.parent.parent
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    for path in folder.rglob("*"):
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("part", WRONG_PARTS, ids=ascii)
@pytest.mark.parametrize("place", ["{}", "1/{}", "{}/model.onnx", "1/{}/x"])
def test_names_that_are_not_plain_are_refused(uploads: Uploads, part: str, place: str) -> None:
    """Before anything is written, with a text in which nothing of it does harm."""
    name = "file:" + place.format(part)
    with pytest.raises(RequestError) as caught:
        uploads.check({name: b""})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["/etc/passwd", "1//x", "1/../../x", "a/b/c/d", "config.pbtxt"])
def test_other_names_that_lead_nowhere_good(uploads: Uploads, name: str) -> None:
    """Absolute, empty parts, too deep, and the configuration, which comes in its own parameter."""
    with pytest.raises(RequestError):
        uploads.check({f"file:{name}": b""})


@pytest.mark.parametrize("name", [*WRONG_PARTS, "a/b", "../m", "/m"], ids=ascii)
def test_a_model_s_name_must_be_plain_too(uploads: Uploads, name: str) -> None:
    """It becomes a folder's."""
    with pytest.raises(RequestError):
        uploads.put(name, {"file:1/x": b""})
    assert uploads._root is None


@given(st.dictionaries(st.text().map("file:".__add__), st.binary(max_size=9), max_size=4))
def test_whatever_the_names_nothing_is_written_elsewhere(files: dict[str, bytes]) -> None:
    """What passes the check lies in the folder, and all of it does."""
    uploads = Uploads(BOUNDS)
    try:
        folder = put(uploads, files)
    except HeadraceError:
        assert uploads._root is None
    else:
        written = [path for path in folder.rglob("*") if path.is_file()]
        assert len(written) == len(files)
        assert all(path.resolve().is_relative_to(folder.resolve()) for path in written)
    finally:
        uploads.close()


def test_a_file_cannot_be_a_folder_as_well(uploads: Uploads) -> None:
    """Which of the two would be written first is nobody's business."""
    with pytest.raises(RequestError, match="'file:1/x' is a file and the folder of another"):
        uploads.check({"file:1/x/y": b"", "file:1/x": b""})


def test_a_link_is_never_followed(uploads: Uploads, tmp_path: Path) -> None:
    """Though nobody else can put one there."""
    folder = put(uploads, {"file:1/x": b"mine"})
    (folder.parent.parent / "2/m/1").mkdir(parents=True)
    target = tmp_path / "target"
    (folder.parent.parent / "2/m/1/y").symlink_to(target)
    with pytest.raises(OSError, match="exists"):
        uploads.put("m", {"file:1/y": b"theirs"})
    assert not target.exists()


def test_files_are_few_and_small(uploads: Uploads) -> None:
    """One load, and all that lie here together; what goes makes room."""
    with pytest.raises(TooLargeError, match="--max-upload-files"):
        uploads.check({f"file:1/{number}": b"" for number in range(4)})
    with pytest.raises(TooLargeError, match="--max-upload-bytes"):
        uploads.check({"file:1/x": bytes(101)})
    first = put(uploads, {"file:1/x": bytes(60)})
    with pytest.raises(TooLargeError, match="other clients that are loaded 60"):
        put(uploads, {"file:1/x": bytes(60)})
    uploads.remove(first)
    uploads.remove(first)
    put(uploads, {"file:1/x": bytes(60)})


def test_nothing_is_taken_unless_it_is_allowed() -> None:
    """The text names what would allow it."""
    with pytest.raises(UnsupportedError, match="--allow-model-uploads"):
        Uploads(UploadBounds()).check({"file:1/x": b""})


def test_what_cannot_be_written_leaves_nothing(uploads: Uploads) -> None:
    """Neither files nor a share of the bytes."""
    with pytest.raises(OSError, match="exists"):
        uploads.put("m", {"file:1/x": b"x", "file:1/x/y": b"y"})  # `check` refuses that
    assert uploads._root is not None
    assert list(uploads._root.path.iterdir()) == []
    put(uploads, {"file:1/x": bytes(100)})


def test_in_the_end_the_folder_is_gone(uploads: Uploads) -> None:
    """Also when files still lie in it, and a second time."""
    root = put(uploads, {"file:1/x": b""}).parent.parent
    uploads.close()
    uploads.close()
    assert not root.exists()


def test_texts_do_not_tell_where_it_was(uploads: Uploads) -> None:
    """Errors of the runtime name files."""
    folder = put(uploads, {"file:1/x": b""})
    text = f"{folder}/1/x: is broken; {folder}/1/x"
    assert uploads.hidden(text) == "m/1/x: is broken; m/1/x"
