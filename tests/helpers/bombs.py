"""Decompression bombs, made in a moment: one compressed mebibyte of zeros, repeated."""

from __future__ import annotations

import zlib
from functools import cache

MIB = 1 << 20
GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\2\xff"
LAST_BLOCK = b"\3\0"  # deflate's way to say: nothing more


@cache
def gzip_zeros(num_mib: int) -> bytes:
    """A right gzip of so many mebibytes of zeros, a thousand times smaller."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    mib = bytes(MIB)
    block = packer.compress(mib) + packer.flush(zlib.Z_FULL_FLUSH)  # stands for itself
    checksum = 0
    for _ in range(num_mib):
        checksum = zlib.crc32(mib, checksum)
    trailer = checksum.to_bytes(4, "little") + (num_mib * MIB % 2**32).to_bytes(4, "little")
    return GZIP_HEADER + block * num_mib + LAST_BLOCK + trailer
