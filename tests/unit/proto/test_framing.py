"""BYTES tensors are framed as an unmodified client frames them, and faulty framing is named."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from headrace_proto.framing import check_bytes, decode_bytes, encode_bytes
from headrace_proto.tensors import TensorError

ELEMENTS = st.lists(st.binary(max_size=40), max_size=12)


def _by_peer(elements: list[bytes]) -> bytes:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    packed = serialize_byte_tensor(array)
    return bytes(packed.item()) if packed.size else b""


@given(ELEMENTS)
def test_framing_is_the_peers(elements: list[bytes]) -> None:
    """Tritonclient frames the same elements to the same bytes, and reads ours back."""
    raw = encode_bytes(elements)
    assert raw == _by_peer(elements)
    assert list(deserialize_bytes_tensor(raw)) == elements
    assert decode_bytes(raw, len(elements)) == elements
    assert decode_bytes(memoryview(bytearray(raw)), len(elements)) == elements


@given(st.lists(st.text(max_size=20), max_size=5))
def test_text_goes_as_utf8(elements: list[str]) -> None:
    """Text is framed as its UTF-8 bytes."""
    assert decode_bytes(encode_bytes(elements), len(elements)) == [e.encode() for e in elements]


def test_example_of_the_protocol() -> None:
    """b"ab" and b"xyz" take 13 bytes."""
    raw = b"\x02\x00\x00\x00ab\x03\x00\x00\x00xyz"
    assert len(raw) == 13
    assert encode_bytes([b"ab", "xyz"]) == raw
    assert encode_bytes(each for each in (np.bytes_(b"ab"), np.str_("xyz"))) == raw


@pytest.mark.parametrize(
    ("raw", "num_elements", "text"),
    [
        (b"", 1, r"element 0 of 1, at byte 0, has no length: 0 bytes came"),
        (b"\0\0\0", 1, r"element 0 of 1, at byte 0, has no length: 3 bytes came"),
        (b"\0\0\0\0", 2, r"element 1 of 2, at byte 4, has no length: 4 bytes came"),
        (b"\2\0\0\0a", 1, r"element 0 of 1, at byte 0, claims 2 bytes, and 1 are left"),
        (b"\xff\xff\xff\xffa", 1, r"claims 4294967295 bytes, and 1 are left"),
        (b"\1\0\0\0a\0\0\0\0", 1, r"1 elements end at byte 5, and 9 bytes came"),
        (b"\0", 0, r"0 elements end at byte 0, and 1 bytes came"),
        (b"\0\0\0\0" * 3, 10**30, r"element 3 of 10+, at byte 12, has no length"),
    ],
)
def test_faulty_framing_is_named(raw: bytes, num_elements: int, text: str) -> None:
    """The text says which element is wrong, where, and what came."""
    with pytest.raises(TensorError, match=text):
        check_bytes(raw, num_elements)
    with pytest.raises(TensorError, match=text):
        decode_bytes(memoryview(raw), num_elements)


def test_any_bytes_are_a_tensor_or_an_error() -> None:
    """Of 20,000 damaged tensors those accepted frame back to themselves; no other error comes."""
    random_ = random.Random(2)
    num_accepted = 0
    for _ in range(20_000):
        raw = bytearray(encode_bytes([random_.randbytes(random_.randrange(6)) for _ in range(4)]))
        for _ in range(random_.randrange(3)):
            at = random_.randrange(len(raw))
            raw[at : at + random_.randrange(2)] = random_.choice((b"", b"\0", b"\1", b"\x80"))
        num_elements = random_.choice((3, 4, 4, 4, 5))
        try:
            elements = decode_bytes(raw, num_elements)
        except TensorError:
            continue
        num_accepted += 1
        assert len(elements) == num_elements
        assert encode_bytes(elements) == bytes(raw)
    assert 1000 < num_accepted < 19_000


@pytest.mark.parametrize("element", [1, None, np.int64(3), ["a"]])
def test_other_elements_are_refused(element: object) -> None:
    """What is neither bytes nor text is refused, even when it has a buffer."""
    with pytest.raises(TensorError, match=r"element 1 is \w+, not bytes or str"):
        encode_bytes([b"", element])  # type: ignore[list-item]


def test_text_without_utf8_is_refused() -> None:
    """A lone surrogate is named with its element."""
    with pytest.raises(TensorError, match="element 0 is text that has no UTF-8"):
        encode_bytes(["\ud800"])
