"""Reads a config.pbtxt, protobuf's text format; its errors name file, line, field and reason."""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf import text_format

from headrace.errors import ConfigError
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

MAX_CONFIG_BYTES = 1 << 20
"""A configuration written by hand is a few KiB; a model file saved under its name is far more."""

_MAX_REASON_CHARS = 200  # protobuf repeats a number that is out of range

_TOKEN = re.compile(
    r"""
    \#[^\n]*                                          # a comment
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'       # a string
    | [A-Za-z_]\w*                                    # a field or a value
    | [{}<>\[\]:]
    | [^\s{}<>\[\]:,;]+
    """,
    re.VERBOSE,
)
_UNKNOWN_FIELD = re.compile(r'has no field named "(\w+)"')
_UNKNOWN_VALUE = re.compile(r'Enum type "[\w.]+" has no value named (\w+)')


def read_config(path: Path) -> config_pb.ModelConfig:
    """Read and parse a configuration file.

    Raises:
        ConfigError: The file cannot be read, or is not a model configuration.
    """
    return parse_config(read_text(path, MAX_CONFIG_BYTES), path=str(path))


def read_text(path: Path, max_bytes: int) -> str:
    """Read a small UTF-8 file that a person wrote.

    Raises:
        ConfigError: Not a plain file, not readable, larger than `max_bytes`, or not UTF-8.
    """
    try:
        # A named pipe would block the open for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError("is not a plain file", path=str(path))
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=str(path)) from None
    if len(data) > max_bytes:
        reason = f"is larger than {max_bytes} bytes: is this a model saved under a wrong name?"
        raise ConfigError(reason, path=str(path))
    try:
        return data.decode("utf-8-sig")  # some editors put a byte-order mark first
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"line {line}: byte 0x{data[error.start]:02x} is not UTF-8 text"
        raise ConfigError(reason, path=str(path)) from None


def parse_config(text: str, *, path: str) -> config_pb.ModelConfig:
    """Parse the text of a configuration; unknown fields are refused.

    Args:
        text: The file's text.
        path: What errors call the file.

    Raises:
        ConfigError: Its reason begins with line and column; its field is the one being read.
    """
    try:
        return text_format.Parse(text, config_pb.ModelConfig())
    except text_format.ParseError as error:
        line, column = error.GetLine() or 1, error.GetColumn() or 1
        place = _place(text, line, column)
        reason = _reason(str(error), text.split("\n"), line, column) + place.hint(str(error))
        reason = f"line {line}, column {column}: {reason}"
        raise ConfigError(reason, path=path, field=place.name) from None
    except ValueError as error:  # of an enum by a number beyond 32 bits, which has no place
        raise ConfigError(f"cannot be read: {str(error)[:_MAX_REASON_CHARS]}", path=path) from None


def _reason(message: str, lines: list[str], line: int, column: int) -> str:
    """Return protobuf's message without the place and the source line it begins with."""
    reason = message.removeprefix(f"{line}:{column} : ")
    source = lines[line - 1] if line <= len(lines) else ""
    for quoted in (f"'{source}': ", "'': "):
        reason = reason.removeprefix(quoted)
    return reason.rstrip(".")


@dataclass(slots=True)
class _Frame:
    """One open message of the text: where the reader is inside it."""

    key: str = ""  # the field whose value is being read, or was read last
    is_value_next: bool = False
    is_in_list: bool = False
    num_seen: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the text: the field's path, and the message type that it belongs to."""

    name: str | None
    message: Descriptor | None
    last: FieldDescriptor | None

    def hint(self, message: str) -> str:
        """Return the known name that comes closest to the unknown one, as a question."""
        known: list[str] = []
        if unknown := _UNKNOWN_FIELD.search(message):
            known = list(self.message.fields_by_name) if self.message else []
        elif unknown := _UNKNOWN_VALUE.search(message):
            enum = self.last.enum_type if self.last else None
            known = list(enum.values_by_name) if enum else []
        close = difflib.get_close_matches(unknown[1], known, n=1) if unknown else []
        return f"; did you mean {close[0]}?" if close else ""


def _place(text: str, line: int, column: int) -> _Place:
    """Say which field the text is in at `line` and `column`, both counted from 1."""
    stop = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1
    frames = _frames(text, stop)
    message: Descriptor | None = config_pb.ModelConfig.DESCRIPTOR
    last: FieldDescriptor | None = None
    path: list[str] = []
    for depth, frame in enumerate(frames):
        if not frame.key:
            break
        if depth:
            message = last.message_type if last else None
        last = message.fields_by_name.get(frame.key) if message else None
        is_open = depth + 1 < len(frames)
        index = frame.num_seen.get(frame.key, 0) - is_open
        is_list = last is not None and last.message_type is not None and _is_repeated(last)
        path.append(f"{frame.key}[{index}]" if is_list else frame.key)
    return _Place(".".join(path) or None, message, last)


def _frames(text: str, stop: int) -> list[_Frame]:
    """Return the messages that are open at offset `stop`, the file itself first."""
    frames = [_Frame()]
    for offset, token in _tokens(text):
        if offset > stop or (offset == stop and not token.isidentifier()):
            break
        frame = frames[-1]
        if token in "{<":
            frame.num_seen[frame.key] = frame.num_seen.get(frame.key, 0) + 1
            frames.append(_Frame())
        elif token in "}>":
            frames = frames[:-1] or [_Frame()]
            frames[-1].is_value_next = False
        elif token == "[":
            frame.is_in_list = True
        elif token == "]":
            frame.is_in_list = frame.is_value_next = False
        elif token == ":":
            frame.is_value_next = True
        elif token.isidentifier() and not (frame.is_value_next or frame.is_in_list):
            frame.key = token
        else:
            frame.is_value_next = False
    return frames


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, token) without comments."""
    for match in _TOKEN.finditer(text):
        if not match[0].startswith("#"):
            yield match.start(), match[0]


def _is_repeated(descriptor: FieldDescriptor) -> bool:
    # A repeated field's default is a list in every protobuf; `label` is gone from the newest.
    return isinstance(descriptor.default_value, list)
