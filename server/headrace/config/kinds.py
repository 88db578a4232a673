"""The kinds of values that settings have: how each is read, written and described."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Protocol, get_args, get_origin

from headrace.config.local_cache import LocalCache, LocalCacheKind
from headrace.config.restriction import Restricted, Restriction
from headrace.errors import ConfigError

TRUE_WORDS: Final = frozenset({"true", "1", "yes", "on"})
FALSE_WORDS: Final = frozenset({"false", "0", "no", "off"})


class Kind(Protocol):
    """One kind of value."""

    @property
    def metavar(self) -> str:
        """The placeholder in --help."""

    @property
    def expected(self) -> str:
        """What a value must be, as a noun phrase for error texts."""

    def read(self, raw: Any) -> Any:
        """Return the value of text or of a TOML value; ValueError when it is none."""

    def show(self, value: Any) -> str:
        """Write a value as a flag takes it."""


@dataclass(frozen=True)
class Boolean:
    """True or false, in the spellings that Triton takes."""

    metavar: str = "[true|false]"
    expected: str = "true or false"

    def read(self, raw: Any) -> bool:
        """Take a boolean or its word."""
        if isinstance(raw, bool):
            return raw
        word = str(raw).strip().lower()
        if word not in TRUE_WORDS | FALSE_WORDS:
            raise ValueError
        return word in TRUE_WORDS

    def show(self, value: bool) -> str:
        """Write the word."""
        return "true" if value else "false"


@dataclass(frozen=True)
class Number:
    """An integer, or a decimal number when `is_integer` is false, within bounds."""

    low: float | None = None
    high: float | None = None
    is_integer: bool = True

    @property
    def metavar(self) -> str:
        """The placeholder in --help."""
        return "INTEGER" if self.is_integer else "NUMBER"

    @property
    def expected(self) -> str:
        """What a value must be."""
        noun = "an integer" if self.is_integer else "a number"
        if self.low is not None and self.high is not None:
            return f"{noun} from {self.low} to {self.high}"
        return noun if self.low is None else f"{noun} of at least {self.low}"

    def read(self, raw: Any) -> float:
        """Take a number or its text; a boolean is no number."""
        is_number = isinstance(raw, int | str) or (isinstance(raw, float) and not self.is_integer)
        if isinstance(raw, bool) or not is_number:
            raise ValueError
        value = int(raw) if self.is_integer else float(raw)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError
        return value

    def show(self, value: float) -> str:
        """Write the digits."""
        return str(value) if self.is_integer else f"{value:g}"


@dataclass(frozen=True)
class Text:
    """Any text without control characters."""

    metavar: str = "TEXT"
    expected: str = "text without control characters"

    def read(self, raw: Any) -> str:
        """Take text."""
        if not isinstance(raw, str) or not raw.isprintable():
            raise ValueError
        return raw

    def show(self, value: str) -> str:
        """Write it as it is."""
        return value


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def metavar(self) -> str:
        """The placeholder in --help."""
        return f"[{'|'.join(self.words)}]"

    @property
    def expected(self) -> str:
        """What a value must be."""
        return f"one of {', '.join(self.words)}"

    def read(self, raw: Any) -> str:
        """Take one of the words, in any case."""
        by_lower = {word.lower(): word for word in self.words}
        word = by_lower.get(raw.strip().lower()) if isinstance(raw, str) else None
        if word is None:
            raise ValueError
        return word

    def show(self, value: str) -> str:
        """Write the word."""
        return value


@dataclass(frozen=True)
class File:
    """A path."""

    metavar: str = "PATH"
    expected: str = "a path"

    def read(self, raw: Any) -> Path:
        """Take a path; `~` is the user's home."""
        if not isinstance(raw, str | Path) or not str(raw) or "\0" in str(raw):
            raise ValueError
        return Path(raw).expanduser()

    def show(self, value: Path | None) -> str:
        """Write the path."""
        return "" if value is None else str(value)


@dataclass(frozen=True)
class Many:
    """Several values of one kind; in one text they are separated as the system separates paths."""

    item: Kind

    @property
    def separator(self) -> str:
        """What stands between two values in one text."""
        if isinstance(self.item, Restricted):
            return ";"
        return os.pathsep if isinstance(self.item, File) else ","

    @property
    def is_secret(self) -> bool:
        """True when no text may repeat a value."""
        return isinstance(self.item, Restricted)

    @property
    def metavar(self) -> str:
        """The placeholder in --help."""
        return self.item.metavar

    @property
    def expected(self) -> str:
        """What a value must be."""
        return f"{self.item.expected}, or several separated by '{self.separator}'"

    def read(self, raw: Any) -> tuple[Any, ...]:
        """Take a sequence of values, or one text with separators."""
        values = list(raw) if isinstance(raw, list | tuple) else self._split(raw)
        if not isinstance(self.item, File | Restricted):  # one of several is taken as it is
            values = [value for part in values for value in self._split(part)]
        return tuple(self.item.read(value) for value in values)

    def _split(self, raw: Any) -> list[Any]:
        if not isinstance(raw, str):
            return [raw]
        return [part for part in raw.split(self.separator) if part]

    def show(self, value: tuple[Any, ...]) -> str:
        """Write one text."""
        return self.separator.join(self.item.show(part) for part in value)


def kind_of(annotation: Any, low: float | None, high: float | None) -> Kind:
    """Return the kind of a field with this annotation."""
    if get_origin(annotation) is tuple:
        return Many(kind_of(get_args(annotation)[0], low, high))
    if get_origin(annotation) is Literal:
        return Choice(get_args(annotation))
    if get_origin(annotation) is UnionType:
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    if annotation in (int, float):
        return Number(low, high, is_integer=annotation is int)
    kinds: dict[Any, Kind] = {
        bool: Boolean(),
        str: Text(),
        Path: File(),
        Restriction: Restricted(),
        LocalCache: LocalCacheKind(),
    }
    if annotation not in kinds:
        raise ConfigError(f"a setting cannot have the type {annotation}")
    return kinds[annotation]
