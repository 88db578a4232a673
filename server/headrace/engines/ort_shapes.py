"""Whether an ONNX model can write its outputs straight into a block, and their shapes there.

That needs shapes known before the run, from the names that the graph gives to dimensions, and a run
that writes every byte: a block held another request's data before. Both are tried on zeros at load.
Models that fail are fed with arrays instead, and answer from ONNX Runtime's own memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.engines.base import Shape, Signature, TensorSpec
from headrace.engines.layout import num_elements
from headrace.engines.ort_run import element_type
from headrace_proto.datatypes import DATATYPES

log = logging.getLogger(__name__)

POISONS = (0x55, 0xAA)  # a byte that holds first the one and then the other was not written


@dataclass(frozen=True, slots=True)
class Symbols:
    """Dimensions as the graph names them: a number, or a name that stands for one."""

    inputs: tuple[tuple[int | str | None, ...], ...]
    outputs: tuple[tuple[int | str, ...], ...]

    def output_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the output shapes for these input shapes."""
        known: dict[str, int] = {}
        for names, shape in zip(self.inputs, shapes, strict=True):
            known.update((n, d) for n, d in zip(names, shape, strict=True) if isinstance(n, str))
        return tuple(
            tuple(known[dim] if isinstance(dim, str) else dim for dim in dims)
            for dims in self.outputs
        )


def find_symbols(session: Any, signature: Signature, path: Path) -> Symbols | None:
    """Return what output shapes follow from; None when outputs cannot be written into a block.

    A dynamic output dimension is known when an input has a dimension of the same name. BYTES are
    ONNX Runtime's own strings, which lie in no block.
    """
    if any(spec.datatype == "BYTES" for spec in (*signature.inputs, *signature.outputs)):
        return None
    inputs = tuple(tuple(node.shape) for node in session.get_inputs())
    outputs = tuple(tuple(node.shape) for node in session.get_outputs())
    known = {dim for dims in inputs for dim in dims if isinstance(dim, str)}
    if not all(dim in known or isinstance(dim, int) for dims in outputs for dim in dims):
        return None
    symbols = Symbols(inputs, outputs)
    if not _keeps_its_word(session, signature, symbols, path):
        log.info("%s: outputs are not what the graph says; they are copied after each run", path)
        return None
    return symbols


def _keeps_its_word(session: Any, signature: Signature, symbols: Symbols, path: Path) -> bool:
    """Run on zeros: are the output shapes as promised, and is every byte of them written?

    Every dynamic dimension is 2, then 1: models may refuse either. A model that refuses zeros
    altogether is believed; a run whose outputs do not fit would fail with an error, not go wrong.
    """
    for size in (2, 1):
        shapes = [
            tuple(size if dim is None else dim for dim in spec.shape) for spec in signature.inputs
        ]
        promised = symbols.output_shapes(shapes)
        try:
            if _has_other_shapes(session, signature, shapes, promised):
                return False
            first, second = (
                _run_over(poison, session, signature, shapes, promised) for poison in POISONS
            )
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is not the names' fault
            log.debug("%s refuses a trial run on zeros: %s", path, error)
            continue
        return not any(
            np.any((one == POISONS[0]) & (other == POISONS[1]))
            for one, other in zip(first, second, strict=True)
        )
    return True


def _has_other_shapes(
    session: Any, signature: Signature, shapes: Sequence[Shape], promised: Sequence[Shape]
) -> bool:
    """Run on arrays; not for BF16, which numpy has not: there the run over a pattern must do."""
    if any(spec.datatype == "BF16" for spec in (*signature.inputs, *signature.outputs)):
        return False
    feeds = {
        spec.name: np.zeros(shape, DATATYPES[spec.datatype].numpy)
        for spec, shape in zip(signature.inputs, shapes, strict=True)
    }
    return tuple(output.shape for output in session.run(None, feeds)) != promised


def _run_over(
    poison: int,
    session: Any,
    signature: Signature,
    shapes: Sequence[Shape],
    promised: Sequence[Shape],
) -> list[npt.NDArray[np.uint8]]:
    """Run with outputs bound to memory full of one byte, and return that memory.

    Not every output is written: one that is an input, too, is handed on as it is.
    """
    io = session.io_binding()
    inputs = [
        _bound(io.bind_input, spec, shape, 0)
        for spec, shape in zip(signature.inputs, shapes, strict=True)
    ]
    outputs = [
        _bound(io.bind_output, spec, shape, poison)
        for spec, shape in zip(signature.outputs, promised, strict=True)
    ]
    session.run_with_iobinding(io)
    del inputs  # until here their memory was ONNX Runtime's to read
    return outputs


def _bound(bind: Any, spec: TensorSpec, shape: Shape, fill: int) -> npt.NDArray[np.uint8]:
    """Bind a tensor to memory filled with a byte, and return that memory."""
    size_bytes = num_elements(shape) * DATATYPES[spec.datatype].itemsize_bytes
    memory = np.full(size_bytes, fill, np.uint8)
    bind(spec.name, "cpu", 0, element_type(spec.datatype), list(shape), memory.ctypes.data)
    return memory
