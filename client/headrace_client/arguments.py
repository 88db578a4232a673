"""What the command line names: inputs as ``name=JSON`` or ``name=@file.npy``, and model files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace_client.errors import InvalidInput
from headrace_client.tensor import Array, Tensor
from headrace_proto import datatypes
from headrace_proto.v1 import inference_pb2 as pb


def read_inputs(arguments: Sequence[str], metadata: pb.ModelMetadataResponse) -> dict[str, Tensor]:
    """Read every ``--input`` of a call, as the model's datatypes.

    Raises:
        InvalidInput: One cannot be read, or the model has no input of its name.
    """
    datatype_of = {each.name: each.datatype for each in metadata.inputs}
    inputs = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise InvalidInput(f"--input {argument}: expected NAME=JSON or NAME=@FILE.npy")
        if name not in datatype_of:
            known = ", ".join(datatype_of) or "none"
            raise InvalidInput(f"--input {argument}: model {metadata.name!r} has inputs {known}")
        try:
            inputs[name] = _tensor(value, datatype_of[name])
        except (ValueError, TypeError, OverflowError, OSError) as error:
            raise InvalidInput(f"--input {name}: {error}") from error
    return inputs


def read_files(arguments: Sequence[str]) -> dict[str, bytes]:
    """Read every ``--file`` of a load: contents by VERSION/NAME.

    Raises:
        InvalidInput: One cannot be read.
    """
    files = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--file {argument}: expected VERSION/NAME=FILE")
        files[name] = _read(path)
    return files


def read_text(path: str) -> str:
    """Read a text file.

    Raises:
        InvalidInput: It cannot be read, or is no text.
    """
    try:
        return _read(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text: {error}") from error


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error


def _tensor(value: str, datatype: str) -> Tensor:
    data: Any = _load(Path(value[1:])) if value.startswith("@") else json.loads(value)
    if datatype in {"BF16", "BYTES"}:
        return Tensor(np.array(data, dtype=object) if datatype == "BYTES" else data, datatype)
    dtype = datatypes.find(datatype).numpy
    if isinstance(data, np.ndarray):
        # A shell has no casts, so float64 may become FP32 here; floats never become integers.
        data = data.astype(dtype, casting="same_kind")
    return Tensor(data, datatype)


def _load(path: Path) -> Array:
    loaded = np.load(path, allow_pickle=False)
    if not isinstance(loaded, np.ndarray):
        raise InvalidInput(f"{path} is not a .npy file of one array")
    return loaded
