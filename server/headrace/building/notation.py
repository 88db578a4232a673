"""Shapes as trtexec writes them, `input:1x3x224x224,other:8`, into the bounds of profiles: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.engines.base import Shape
from headrace.errors import ConfigError

# A name may hold colons and commas; its shape is what stands before the next comma or the end.
_ENTRY: Final = re.compile(r"(?P<name>.+?):(?P<sizes>[0-9]+(?:x[0-9]+)*)(?:,|\Z)", re.DOTALL)

MAX_SIZE: Final = 2**31 - 1
"""TensorRT's bindings pass a dimension in 32 bits."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a profile takes for one input; for a shape tensor, its values."""

    minimum: Shape
    optimum: Shape
    maximum: Shape


Shapes = Mapping[str, Bounds]
"""Input → bounds, in one profile."""


def parse_shapes(text: str, *, flag: str) -> dict[str, Shape]:
    """Read one `name:AxBxC,…`.

    Raises:
        ConfigError: It is no such text; shows where it ceases to be one.
    """
    found: dict[str, Shape] = {}
    at = 0
    while at < len(text) or not found:
        entry = _ENTRY.match(text, at)
        if entry is None:
            raise ConfigError(
                f"{flag} {text!r}: expected name:1x3x224x224, several separated by commas, "
                f"found {text[at:]!r}"
            )
        name, sizes = entry["name"], tuple(map(int, entry["sizes"].split("x")))
        if name in found:
            raise ConfigError(f"{flag} {text!r}: names the input {name!r} twice")
        if max(sizes) > MAX_SIZE:
            raise ConfigError(f"{flag} {text!r}: {max(sizes)} is more than {MAX_SIZE}")
        found[name] = sizes
        at = entry.end()
    return found


def parse_profiles(
    minima: Sequence[str], optima: Sequence[str], maxima: Sequence[str]
) -> tuple[Shapes, ...]:
    """Read the bounds of all profiles: the nth of each list is the nth profile's.

    A list may be empty: the optimum is then the maximum, the maximum the optimum, and the minimum
    the optimum; with the minimum alone, all three are that.

    Raises:
        ConfigError: A text is wrong, the lists differ in length, or a profile has inputs or bounds
            that do not go together.
    """
    given = {"--min": minima, "--opt": optima, "--max": maxima}
    counts = {flag: len(texts) for flag, texts in given.items() if texts}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{flag} {count}" for flag, count in counts.items())
        raise ConfigError(f"every profile takes one of each: {told} times; give all equally often")
    parsed = {
        flag: [parse_shapes(text, flag=flag) for text in texts] for flag, texts in given.items()
    }
    num_profiles = max(counts.values(), default=0)
    return tuple(
        _profile(index, {flag: parsed[flag][index] for flag in counts})
        for index in range(num_profiles)
    )


def _profile(index: int, given: Mapping[str, Mapping[str, Shape]]) -> Shapes:
    names = list(dict.fromkeys(name for shapes in given.values() for name in shapes))
    return {name: _bounds(index, name, given) for name in names}


def _bounds(index: int, name: str, given: Mapping[str, Mapping[str, Shape]]) -> Bounds:
    absent = [flag for flag, shapes in given.items() if name not in shapes]
    if absent:
        raise ConfigError(f"profile {index}: {' and '.join(absent)} leaves out the input {name!r}")
    low, best, high = (given.get(flag, {}).get(name) for flag in ("--min", "--opt", "--max"))
    best = best or high or low
    assert best is not None
    return checked_bounds(low or best, best, high or best, f"profile {index}, input {name!r}")


def checked_bounds(low: Shape, best: Shape, high: Shape, about: str) -> Bounds:
    """Return the bounds; TensorRT itself would take a minimum above the optimum in silence.

    Raises:
        ConfigError: They differ in rank or order.
    """
    if not len(low) == len(best) == len(high):
        raise ConfigError(f"{about}: {_told(low, best, high)} differ in the number of dimensions")
    if any(not a <= b <= c for a, b, c in zip(low, best, high, strict=True)):
        raise ConfigError(
            f"{about}: {_told(low, best, high)}: expected minimum <= optimum <= maximum in every "
            "dimension"
        )
    return Bounds(low, best, high)


def written(shape: Iterable[int]) -> str:
    """Write a shape as trtexec does; `?` for a dimension that is not fixed."""
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"


def _told(low: Shape, best: Shape, high: Shape) -> str:
    return f"minimum {written(low)}, optimum {written(best)} and maximum {written(high)}"
