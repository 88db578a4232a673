"""Optimization profiles: which shapes a plan takes, which profile takes them best, what fits all.

Pure: numbers in, a profile or an error text out. A plan without dynamic dimensions has one profile
whose minimum, optimum and maximum are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from headrace.engines.base import Shape
from headrace.errors import ConfigError, RequestError

MAX_LISTED = 4
"""Profiles named in one error text; a plan may have dozens, and the text travels to a client."""


@dataclass(frozen=True, slots=True)
class Range:
    """What one profile takes for one input: each bound has the input's rank.

    The same holds for the values of a shape tensor, one number an element.
    """

    name: str
    minimum: Shape
    optimum: Shape
    maximum: Shape

    def takes(self, shape: Shape) -> bool:
        """Say whether a shape has this rank and lies within the bounds."""
        return len(shape) == len(self.minimum) and all(
            low <= size <= high
            for low, size, high in zip(self.minimum, shape, self.maximum, strict=True)
        )

    def distance(self, shape: Shape) -> int:
        """Return the Manhattan distance of a shape to the optimum."""
        return sum(abs(size - best) for size, best in zip(shape, self.optimum, strict=True))

    def __str__(self) -> str:
        bounds = zip(self.minimum, self.maximum, strict=True)
        return f"[{', '.join(f'{a}' if a == b else f'{a}..{b}' for a, b in bounds)}]"


@dataclass(frozen=True, slots=True)
class Profile:
    """One optimization profile: a range for each input, in the engine's order.

    `values` has a range for each shape tensor among the inputs, in the same order.
    """

    index: int
    inputs: tuple[Range, ...]
    values: tuple[Range, ...] = ()

    @property
    def max_rows(self) -> int:
        """The most rows of a batch: the smallest first dimension at its maximum, over all inputs.

        Shape tensors have no rows; 0 when nothing has, or when an input is a scalar.
        """
        shape_tensors = {each.name for each in self.values}
        maxima = [each.maximum for each in self.inputs if each.name not in shape_tensors]
        return min((maximum[0] if maximum else 0 for maximum in maxima), default=0)

    def takes(self, shapes: Sequence[Shape]) -> bool:
        """Say whether every input's shape lies within this profile."""
        return all(each.takes(shape) for each, shape in zip(self.inputs, shapes, strict=True))

    def distance(self, shapes: Sequence[Shape]) -> int:
        """Return the summed distance of the shapes to the optimum, over all inputs."""
        return sum(each.distance(shape) for each, shape in zip(self.inputs, shapes, strict=True))


def select(profiles: Sequence[Profile], wanted: Sequence[int]) -> tuple[Profile, ...]:
    """Return the profiles that are wanted by index, in their order; all when none is named.

    Raises:
        ConfigError: There is no such profile.
    """
    indices = {profile.index for profile in profiles}
    for index in wanted:
        if index not in indices:
            raise ConfigError(
                f"profile {index} is asked for, but the plan has {len(profiles)}, numbered from 0",
                field="instance_group.profile",
            )
    return tuple(profile for profile in profiles if not wanted or profile.index in wanted)


def choose(profiles: Sequence[Profile], shapes: Sequence[Shape]) -> Profile:
    """Return the profile that takes the shapes and lies nearest to them; the first of equals.

    Triton chooses so too: the smallest sum of |dimension - optimum|.

    Args:
        profiles: At least one.
        shapes: One for each input, in the engine's order.

    Raises:
        RequestError: No profile takes them; names an input, its shape and what is allowed.
    """
    if len(shapes) != len(profiles[0].inputs):
        raise RequestError(f"{len(shapes)} inputs came, expected {len(profiles[0].inputs)}")
    fitting = [profile for profile in profiles if profile.takes(shapes)]
    if not fitting:
        raise RequestError(_refusal(profiles, shapes))
    return min(fitting, key=lambda profile: profile.distance(shapes))


def check_values(profile: Profile, values: Sequence[Shape]) -> None:
    """Refuse values of shape tensors that lie outside the profile.

    Raises:
        RequestError: Names the input, its values and what is allowed.
    """
    for allowed, came in zip(profile.values, values, strict=True):
        if not allowed.takes(came):
            raise RequestError(
                f"input {allowed.name!r} has the values {list(came)}, expected values in {allowed}"
            )


def max_elements(profiles: Sequence[Profile]) -> tuple[int, ...]:
    """Return the most elements that each input can have under any of the profiles."""
    by_input = zip(*(profile.inputs for profile in profiles), strict=True)
    return tuple(max(prod(each.maximum) for each in ranges) for ranges in by_input)


def _refusal(profiles: Sequence[Profile], shapes: Sequence[Shape]) -> str:
    """Say which input fits no profile, or that the shapes fit none together."""
    for position, shape in enumerate(shapes):
        ranges = [profile.inputs[position] for profile in profiles]
        if not any(each.takes(shape) for each in ranges):
            allowed = " or ".join(dict.fromkeys(map(str, ranges[:MAX_LISTED])))
            return (
                f"input {ranges[0].name!r} has shape {list(shape)}, expected {allowed}"
                f"{_more(ranges)}; send a shape in that range, or serve a plan built with a "
                "profile that covers it"
            )
    names = [each.name for each in profiles[0].inputs]
    came = ", ".join(f"{name} {list(shape)}" for name, shape in zip(names, shapes, strict=True))
    expected = "; or ".join(
        ", ".join(f"{each.name} {each}" for each in profile.inputs)
        for profile in profiles[:MAX_LISTED]
    )
    return (
        f"no optimization profile takes these shapes together: {came}; expected "
        f"{expected}{_more(profiles)}"
    )


def _more(listed: Sequence[object]) -> str:
    """Say how many were left out of a list that is cut at `MAX_LISTED`."""
    return f" (and {len(listed) - MAX_LISTED} more)" if len(listed) > MAX_LISTED else ""
