"""How values of the command line are written; each reader says what it expected instead."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from headrace_client.message import Parameter

T = TypeVar("T", int, float)
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class Flood(NamedTuple):
    """One source that sends so many times as much as the others."""

    source: int
    factor: float


def positive(kind: type[T]) -> Callable[[str], T]:
    """Return a reader of one number above 0."""

    def parse(text: str) -> T:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r}; expected a number above 0")
        return value

    return parse


def range_of(kind: type[T]) -> Callable[[str], list[T]]:
    """Return a reader of ``N``, of perf_analyzer's ``START:END:STEP``, and of lists ``1,2,4``."""
    one = positive(kind)

    def parse(text: str) -> list[T]:
        if ":" not in text:
            return [one(part) for part in text.split(",")]
        start, end, *steps = [one(part) for part in text.split(":")]
        if len(steps) > 1 or end < start:
            raise argparse.ArgumentTypeError(f"{text!r}; expected START:END or START:END:STEP")
        step = steps[0] if steps else kind(1)
        count = int((end - start) / step + 1e-9) + 1
        return [kind(start + number * step) for number in range(count)]

    return parse


def seconds(text: str) -> float:
    """Read seconds, or a number with its unit, as in ``500ms``."""
    found = re.fullmatch(r"([0-9.]+)(us|ms|s|m|h|)", text)
    try:
        return float(found[1]) * _UNITS_S[found[2]] if found else float("x")
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}; expected seconds, or as in 500ms or 2m"
        ) from None


def bursts(text: str) -> tuple[float, float]:
    """Read ``ON:OFF``, both in seconds."""
    on, _, off = text.partition(":")
    try:
        on_s, off_s = seconds(on), seconds(off)
    except argparse.ArgumentTypeError:
        on_s = off_s = 0.0
    if not on_s > 0:
        raise argparse.ArgumentTypeError(f"{text!r}; expected ON:OFF in seconds, as in 0.2:0.8")
    return on_s, off_s


def flood(text: str) -> Flood:
    """Read ``SOURCE:FACTOR``."""
    found = re.fullmatch(r"(\d+):(\d+|\d*\.\d+)", text)
    if found is None or not float(found[2]) > 0:
        raise argparse.ArgumentTypeError(f"{text!r}; expected SOURCE:FACTOR, as in 0:20")
    return Flood(int(found[1]), float(found[2]))


def shapes(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Read ``NAME:DIMS``, with ``x`` or commas between dimensions; several inputs by commas."""
    # trtexec parts inputs by commas, perf_analyzer dimensions: a comma before a name parts inputs.
    shapes = []
    for part in re.split(",(?=[^,:]+:)", text):
        name, _, dims = part.rpartition(":")
        if not name or not re.fullmatch(r"\d+([x,]\d+)*", dims):
            raise argparse.ArgumentTypeError(f"{part!r}; expected NAME:DIMS, as in x:1x3x224x224")
        shapes.append((name, tuple(map(int, re.split("[x,]", dims)))))
    return shapes


def parameter(text: str) -> tuple[str, Parameter]:
    """Read ``NAME=VALUE``; what JSON takes for a bool, a number or a string is that."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}; expected NAME=VALUE")
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed if isinstance(parsed, bool | int | float | str) else value
