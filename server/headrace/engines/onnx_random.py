"""Finds operators that draw random numbers in an ONNX file, without a parser for the format.

ONNX Runtime tells which operators a session has only where several providers share them (1.30).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

RANDOM: Final = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
OP_TYPE: Final = 0x22
"""Before length and name of a node's operator: NodeProto.op_type, field 4, in onnx.proto."""

PIECE: Final = 1 << 20
OVERLAP: Final = 2 + max(map(len, RANDOM)) - 1  # one may begin at the last byte of a piece

_OPERATORS: Final = {name: bytes([OP_TYPE, len(name)]) + name.encode() for name in RANDOM}


def random_operators(path: Path) -> set[str]:
    """Return the names of such operators, of subgraphs and functions, too.

    Bytes of a weight or of a text may look like one. A server may be at work meanwhile, so numpy
    searches: it lets other threads run, where a regular expression does not.

    Raises:
        OSError: The file cannot be read.
    """
    content = np.memmap(path, np.uint8, mode="r")
    pieces = (content[at : at + PIECE + OVERLAP] for at in range(0, content.size, PIECE))
    return {name for piece in pieces for name in _operators_in(piece)}


def _operators_in(piece: NDArray[np.uint8]) -> Iterator[str]:
    """Byte by byte, of those places alone that are right so far."""
    begins = np.flatnonzero(piece == OP_TYPE)
    for name, operator in _OPERATORS.items():
        places = begins[begins + len(operator) <= piece.size]
        for offset, byte in enumerate(operator[1:], start=1):
            places = places[piece[places + offset] == byte]
        if places.size:
            yield name
