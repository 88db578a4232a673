"""Digests what is asked, so that equal requests are known by 32 bytes.

SHA-256 behind a secret of this process: nobody can make two requests of one digest, and so see
another's answer, nor foresee a digest. BLAKE2b took twice as long where the CPU has instructions
for SHA, as servers' have (602 KB: 392 against 760 us on an EPYC); CPUs without them turn it round.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

LENGTH_BYTES = 8  # stand before each tensor: no other tensors give the same bytes in a row


class Digest:
    """Digests requests of one form, which differ in their tensors' bytes alone."""

    __slots__ = ("_start",)

    def __init__(self, secret: bytes, form: bytes) -> None:
        """Take in what is the same for all of them."""
        self._start = sha256()
        for part in (secret, form):
            self._start.update(len(part).to_bytes(LENGTH_BYTES, "little") + part)

    def of(self, tensors: Iterable[bytes | memoryview]) -> bytes:
        """Return the 32 bytes for these tensors; large ones without the interpreter lock."""
        state = self._start.copy()
        for tensor in tensors:
            state.update(len(tensor).to_bytes(LENGTH_BYTES, "little"))
            state.update(tensor)
        return state.digest()
