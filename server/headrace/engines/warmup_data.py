"""The bytes of a warm-up sample's inputs: zeros, random numbers, or what a file holds."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import numpy as np

from headrace.engines.layout import num_elements
from headrace.engines.warmup_config import SampleInput, data_path
from headrace.errors import ConfigError
from headrace_proto.datatypes import DATATYPES
from headrace_proto.tensors import TensorError, check_bytes

log = logging.getLogger(__name__)

SEED = 0  # the same numbers at every load
MAX_TEXT_BYTES = 64 << 20
"""Of a file for BYTES, whose size no shape tells."""


def row_data(given: SampleInput, folder: Path) -> bytes:
    """Return the bytes of one row of an input, or of all of it where it has no rows.

    Raises:
        ConfigError: A file cannot be read, or holds too little.
    """
    if given.kind == "input_data_file":
        return _from_file(given, folder)
    if given.kind == "random_data" and given.datatype != "BYTES":  # which are empty in Triton, too
        return _random(given.datatype, given.size_bytes)
    return bytes(given.size_bytes)


def _random(datatype: str, size_bytes: int) -> bytes:
    """Return numbers: floats from 0 to 1, truth values, and any integers."""
    generator = np.random.default_rng(SEED)
    dtype = DATATYPES[datatype].numpy
    count = size_bytes // dtype.itemsize
    if datatype == "BF16":  # the upper half of an FP32
        bits = generator.random(count, np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16).tobytes()
    if dtype.kind == "f":
        return generator.random(count).astype(dtype).tobytes()
    if dtype.kind == "b":
        return generator.integers(0, 2, count).astype(dtype).tobytes()
    return generator.bytes(size_bytes)


def _from_file(given: SampleInput, folder: Path) -> bytes:
    path = data_path(given.file, folder)
    assert path is not None, "the configuration has been checked"
    is_text = given.datatype == "BYTES"
    wanted_bytes = MAX_TEXT_BYTES if is_text else given.size_bytes
    data = _read(path, wanted_bytes + 1)
    if is_text:
        try:
            check_bytes(memoryview(data), num_elements(given.row_shape))
        except TensorError as error:
            raise ConfigError(str(error), path=str(path)) from error
        return data
    if len(data) < wanted_bytes:
        raise ConfigError(
            f"has {len(data)} bytes, but one row of {given.datatype} {list(given.row_shape)} has "
            f"{wanted_bytes}",
            path=str(path),
        )
    if len(data) > wanted_bytes:
        log.warning("%s is longer than one row, %d bytes: the rest is not used", path, wanted_bytes)
    return data[:wanted_bytes]


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a named pipe would block the open for ever
            raise ConfigError("is not a plain file", path=str(path))
        with path.open("rb") as file:
            return file.read(max_bytes)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=str(path)) from error
