"""A file's name never stands for half of it, and never for one that was found wanting."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.building.output import check_writable, replacing
from headrace.errors import ConfigError


def test_the_name_is_given_at_the_end(tmp_path: Path) -> None:
    """Inside, the content can be read elsewhere and the old file is still there."""
    path = tmp_path / "model.plan"
    path.write_bytes(b"old")
    with replacing(path, bytearray(b"new")) as temporary:
        assert temporary.read_bytes() == b"new"
        assert temporary.parent == tmp_path  # or a rename would be a copy
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ConfigError("no"), KeyboardInterrupt()])
def test_an_error_in_between_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    """Nothing else is left in the folder either."""
    path = tmp_path / "model.plan"
    path.write_bytes(b"old")
    with pytest.raises(type(error)), replacing(path, b"new"):
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    """A folder of that name, or no folder around it: before a build, and when it is written."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        check_writable(tmp_path / "folder")
    with pytest.raises(ConfigError, match="there is no folder"):
        check_writable(tmp_path / "nowhere" / "model.plan")
    check_writable(tmp_path / "model.plan")
    with pytest.raises(ConfigError, match="cannot be written"), replacing(tmp_path / "folder", b""):
        pass
    with (
        pytest.raises(ConfigError, match="cannot be written"),
        replacing(tmp_path / "nowhere" / "model.plan", b""),
    ):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]
