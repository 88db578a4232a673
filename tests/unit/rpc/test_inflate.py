"""Compressed messages are unpacked whole or refused, and never to more than the limit."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RequestError, TooLargeError
from headrace.rpc.inflate import HEADS, Inflater, inflated, small_unpacked
from headrace_proto.service import METHODS
from headrace_proto.v1 import inference_pb2 as pb
from helpers.bombs import gzip_zeros

PACKERS: list[Callable[[bytes], bytes]] = [
    gzip.compress,
    *(lambda data, level=level: zlib.compress(data, level) for level in (1, 5, 6, 9)),
]


def unpacked(message: bytes, max_bytes: int) -> bytes:
    async def main() -> bytes:
        inflater = Inflater(max_bytes)
        try:
            return await inflater.unpacked(message)
        finally:
            inflater.close()

    return asyncio.run(main())


@given(st.binary(max_size=2000), st.sampled_from(range(len(PACKERS))))
def test_what_was_packed_comes_out(data: bytes, packer: int) -> None:
    """Gzip and deflate, of every level."""
    packed = PACKERS[packer](data)
    assert packed[:2] in HEADS
    assert inflated(packed, len(data)) == data


@pytest.mark.parametrize("size", [0, 1, 32_768, 32_769, 262_144, 262_145, 524_288, 3_000_000])
def test_small_and_large_ones(size: int) -> None:
    """On the loop or in a thread, in one chunk or several; the limit is inclusive."""
    data = bytes(size)
    assert unpacked(gzip.compress(data), max(size, 1)) == data
    if size:
        with pytest.raises(TooLargeError, match=rf"larger than max .*more than {size - 1}\)"):
            unpacked(gzip.compress(data), size - 1)


@pytest.mark.parametrize("size", [65_000, 200_000, 1_000_000])
def test_what_hardly_gets_smaller(size: int) -> None:
    """Noise of several pieces of packed bytes comes out whole, and its end is found."""
    noise = random.Random(size).randbytes(size)
    packed = gzip.compress(noise)
    assert len(packed) > size
    assert inflated(packed, size) == noise
    for wrong in (packed[:-1], packed + b"\0", packed + bytes(100_000)):
        with pytest.raises(RequestError, match=r"ends too early|bytes follow"):
            inflated(wrong, size)


def test_what_is_not_packed_is_the_message_itself() -> None:
    """Without a copy."""
    message = pb.ModelInferRequest(model_name="m").SerializeToString()
    assert unpacked(message, 1) is message
    assert small_unpacked(message) is message


def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    """1 GiB of zeros, of which 8 MiB are allowed: little more is ever allocated."""
    packed = gzip_zeros(1024)
    assert len(packed) < 1_100_000
    assert gzip.decompress(gzip_zeros(3)) == bytes(3 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            inflated(packed, 8 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 11 << 20


@pytest.mark.parametrize("cut", [2, 3, 9, 10, 15, -9, -8, -1])
def test_one_that_is_cut(cut: int) -> None:
    """Refused, wherever it ends."""
    with pytest.raises(RequestError, match=r"ends too early"):
        inflated(gzip.compress(bytes(range(256)))[:cut], 1000)


@pytest.mark.parametrize("more", [b"\0", gzip.compress(b"more")], ids=["a byte", "a member"])
def test_bytes_behind_it(more: bytes) -> None:
    """A message is one packed whole: what follows would be dropped silently."""
    with pytest.raises(RequestError, match=r"bytes follow"):
        inflated(gzip.compress(b"x") + more, 1000)


@given(st.sampled_from(sorted(HEADS)), st.binary(max_size=300))
def test_garbage_is_refused_or_unpacked_and_nothing_else(head: bytes, tail: bytes) -> None:
    """No other exception than the caller's fault."""
    with contextlib.suppress(RequestError):
        assert len(inflated(head + tail, 100)) <= 100


def test_a_flipped_bit_is_found() -> None:
    """By the checksum."""
    packed = bytearray(gzip.compress(bytes(range(256)) * 4))
    packed[-6] ^= 1
    with pytest.raises(RequestError, match=r"cannot be unpacked"):
        inflated(bytes(packed), 2000)


def test_no_request_begins_like_a_packed_one() -> None:
    """Field 15 as a varint would; so no request may ever get a field 15 of any type."""
    for method in METHODS.values():
        assert 15 not in method.request.DESCRIPTOR.fields_by_number
    with pytest.raises(RequestError, match=r"cannot be unpacked"):  # 0x1F: wire type 7 of field 3
        inflated(b"\x1f\x8b" + pb.ModelInferRequest().SerializeToString() + bytes(20), 10)


def test_small_messages_have_a_small_limit() -> None:
    """A health check names a service, no more."""
    assert small_unpacked(gzip.compress(bytes(32_768))) == bytes(32_768)
    with pytest.raises(TooLargeError):
        small_unpacked(gzip.compress(bytes(32_769)))
