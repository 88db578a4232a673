"""Keys become names in one folder, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.regions.key import FOREIGN, MAX_KEY_BYTES, file_name


@pytest.mark.parametrize("key", ["frames", "/frames", "OUT", "..frames", "a b", "ключ"])
def test_a_plain_name_with_a_slash_or_without(key: str) -> None:
    """Python's clients send none, C++ clients one."""
    assert file_name(key, ()) == key.removeprefix("/")


@pytest.mark.parametrize(
    "key",
    ["", "/", "//", ".", "..", "/..", "../frames", "a/b", "//frames", "/a/", "a\0b", "\0"],
)
def test_what_is_no_plain_name_is_refused(key: str) -> None:
    """Before anything is opened."""
    with pytest.raises(RequestError, match="must be one name"):
        file_name(key, ())


def test_a_name_is_as_long_as_the_system_lets() -> None:
    """Counted in bytes."""
    assert file_name("/" + "ü" * 127, ())
    with pytest.raises(RequestError, match="more than 255 bytes"):
        file_name("ü" * 128, ())


@pytest.mark.parametrize("prefix", FOREIGN)
def test_what_others_keep_there_is_not_for_clients(prefix: str) -> None:
    """Unless the operator says so."""
    with pytest.raises(RequestError, match="begins with what clients may not use"):
        file_name(f"/{prefix}0", ())
    assert file_name(f"/{prefix}0", (prefix,)) == f"{prefix}0"


def test_with_prefixes_all_else_is_refused() -> None:
    """One of several must fit, from the begin on."""
    assert file_name("/cam_1", ("x", "cam_")) == "cam_1"
    for key in ("other", "my_cam_1", "/CAM_1", "cam"):
        with pytest.raises(RequestError, match="client-shm-key-prefix"):
            file_name(key, ("x", "cam_"))


@given(st.text(max_size=300), st.text(max_size=30))
def test_whatever_comes_is_a_name_in_the_folder_or_is_refused(before: str, behind: str) -> None:
    """And no text repeats a key."""
    for key in (before, f"{before}<key>{behind}"):
        try:
            name = file_name(key, ())
        except RequestError as error:
            text = str(error)
        else:
            text = ""
            assert name not in ("", ".", "..")
            assert not {"/", "\0"} & set(name)
            assert len(name.encode("utf-8", "surrogatepass")) <= MAX_KEY_BYTES
        assert "<key>" not in text
