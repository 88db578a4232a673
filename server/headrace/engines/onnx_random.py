"""Finds operators that draw random numbers in an ONNX file, without a parser for the format.

ONNX Runtime tells which operators a session has only where several providers share them (1.30).
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import Final

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

PIECE: Final = 256 << 10
OVERLAP: Final = 2 + max(map(len, RANDOM)) - 1  # one may begin at the last byte of a piece

_NODES: Final = re.compile(
    b"|".join(re.escape(bytes([OP_TYPE, len(name)]) + name.encode()) for name in RANDOM)
)


def random_operators(path: Path) -> set[str]:
    """Return the names of such operators, of subgraphs and functions, too.

    Bytes of a weight or of a text may look like one. A file of 100 MB takes a tenth of a second, in
    pieces: a search keeps the interpreter to itself, and a server may be at work meanwhile.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        pieces = (content[at : at + PIECE + OVERLAP] for at in range(0, len(content), PIECE))
        return {found[0][2:].decode() for piece in pieces for found in _NODES.finditer(piece)}
