"""Digests: equal for what is equal, different for everything else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.response_cache.digest import Digest

TENSORS = st.lists(st.binary(max_size=12), max_size=4)


def digest(tensors: list[bytes], secret: bytes = b"s", form: bytes = b"f") -> bytes:
    return Digest(secret, form).of(tensors)


@given(TENSORS, TENSORS)
def test_two_requests_share_a_digest_only_if_they_are_equal(
    ours: list[bytes], theirs: list[bytes]
) -> None:
    """Wherever one tensor ends and the next begins; bytes and views of them are the same."""
    assert (digest(ours) == digest(theirs)) == (ours == theirs)
    assert Digest(b"s", b"f").of([memoryview(tensor) for tensor in ours]) == digest(ours)


@given(st.binary(max_size=12), st.binary(max_size=12), st.integers(0, 12))
def test_bytes_do_not_move_between_neighbours(left: bytes, right: bytes, at: int) -> None:
    """The same bytes in a row, split elsewhere, are something else."""
    both = left + right
    other = [both[:at], both[at:]]
    assert (digest([left, right]) == digest(other)) == (other == [left, right])


@given(st.binary(min_size=1, max_size=8), st.binary(max_size=8))
def test_secret_and_form_count(more: bytes, form: bytes) -> None:
    """Nor do they run into each other or into the tensors."""
    same = [b"x"]
    assert digest(same, form=form) != digest(same, form=form + more)
    assert digest(same, secret=b"s") != digest(same, secret=b"s" + more)
    assert digest(same, secret=b"s", form=more + form) != digest(same, b"s" + more, form)
    assert digest([], form=more) != digest([more], form=b"")


def test_large_tensors_are_read_to_the_end() -> None:
    """One bit of megabytes is enough."""
    ours = bytes(3_000_000)
    theirs = ours[:-1] + b"\1"
    assert digest([ours]) != digest([theirs])
