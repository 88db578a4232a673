"""What sequences start with: `initial_state` of a state, zeros or a file of the model's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from headrace.engines.layout import num_elements
from headrace.errors import ConfigError
from headrace.escape import cited
from headrace_proto import datatypes
from headrace_proto.v1 import model_config_pb2 as config_pb

Fault = tuple[str, str]  # field, reason
State = config_pb.ModelSequenceBatching.State

FOLDER: Final = "initial_state"
"""Triton's, in the model's folder."""


def read_initial_states(config: config_pb.ModelConfig, folder: Path) -> dict[str, bytes]:
    """Read what states start with out of files: by the name of their input, C order.

    Raises:
        ConfigError: A file is missing, or too short.
    """
    read: dict[str, bytes] = {}
    for index, state in enumerate(config.sequence_batching.state):
        first = state.initial_state[0] if state.initial_state else None
        if first is None or not first.data_file:
            continue
        try:
            read[state.input_name] = _read(state, folder)
        except ConfigError as error:
            field = f"sequence_batching.state[{index}].initial_state[0].data_file"
            raise ConfigError(error.reason, field=field) from error
    return read


def check_initial(state: State, at: str, folder: Path | None) -> Iterator[Fault]:
    """Yield (field, reason) for what is wrong with how a state starts.

    Args:
        state: The state.
        at: Where its `initial_state` stands in the configuration.
        folder: The model's, to look for the file; None to leave it out.
    """
    if len(state.initial_state) > 1:
        yield at, f"has {len(state.initial_state)} entries, expected one at most"
    if len(state.initial_state) != 1:
        return
    first, at = state.initial_state[0], f"{at}[0]"
    dims, wanted = list(first.dims), list(state.dims)
    if first.data_type != state.data_type:
        got, expected = map(config_pb.DataType.Name, (first.data_type, state.data_type))
        yield f"{at}.data_type", f"is {got}, but the state is {expected}"
    if any(size < 1 for size in dims):
        yield f"{at}.dims", f"{dims}: each must be 1 or more, for there are real data behind it"
    elif len(dims) != len(wanted) or any(
        size not in (-1, own) for own, size in zip(dims, wanted, strict=True)
    ):
        yield f"{at}.dims", f"{dims} do not fit the state's dims, {wanted}"
    elif first.WhichOneof("state_data") is None or (not first.zero_data and not first.data_file):
        yield at, "needs zero_data: true, or data_file"
    elif first.data_file and folder is not None:
        try:
            _read(state, folder)
        except ConfigError as error:
            yield f"{at}.data_file", error.reason


def _read(state: State, folder: Path) -> bytes:
    first = state.initial_state[0]
    parts = PurePosixPath(first.data_file)
    if parts.is_absolute() or ".." in parts.parts or "\0" in first.data_file:
        where = f'leads out of the model\'s folder "{FOLDER}"; put it there'
        reason = f"{cited(repr(first.data_file))} {where}"
        raise ConfigError(reason)
    itemsize = datatypes.find(datatypes.from_config(first.data_type)).itemsize_bytes
    size_bytes = num_elements(tuple(first.dims)) * itemsize
    try:
        with (folder / FOLDER / parts).open("rb") as file:
            data = file.read(size_bytes + 1)
    except OSError as error:
        name = f"{FOLDER}/{first.data_file}"
        raise ConfigError(f'"{cited(name)}" cannot be read: {error.strerror}') from error
    if len(data) != size_bytes:
        longer = "more" if len(data) > size_bytes else len(data)
        reason = f'"{FOLDER}/{first.data_file}" has {longer} bytes, expected {size_bytes}'
        raise ConfigError(reason)
    return data
