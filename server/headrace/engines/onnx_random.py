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

_NAMES: Final = {name.encode(): name for name in RANDOM}
_IS_LENGTH: Final = np.isin(np.arange(256), [*map(len, RANDOM)])  # (256,) bool


def random_operators(path: Path) -> set[str]:
    """Return the names of such operators, of subgraphs and functions, too.

    Bytes of a weight or of a text may look like one. A server may be at work meanwhile, so numpy
    searches: it lets other threads run, where a regular expression does not.

    Raises:
        OSError: The file cannot be read.
    """
    content = np.memmap(path, np.uint8, mode="r")
    pieces = (content[at : at + PIECE + OVERLAP] for at in range(0, content.size, PIECE))
    return {_NAMES[text] for piece in pieces for text in _likely(piece) if text in _NAMES}


def _likely(piece: NDArray[np.uint8]) -> Iterator[bytes]:
    """What follows each byte that may begin an operator, where the length is one of ours."""
    begins = np.flatnonzero(piece[:-1] == OP_TYPE)
    for begin in begins[_IS_LENGTH[piece[begins + 1]]]:
        yield piece[begin + 2 : begin + 2 + piece[begin + 1]].tobytes()
