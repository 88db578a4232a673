"""Writes down the API of a TensorRT module in the notation of `headrace.engines.trt_api`.

Compiled bindings tell their signatures in docstrings, a Python module in annotations; both come out
the same, so that the fake is held to the truth by the same comparison as the adapter's list.

Run as a script in an interpreter of its own, it prints the description of one module as JSON.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

SAME_TYPES = {
    "buffer": "Buffer",
    "typing_extensions.Buffer": "Buffer",
    "typing.SupportsInt": "int",
    "collections.abc.Sequence[typing.SupportsInt]": "list[int]",
    "capsule": "Any",
    "typing_extensions.CapsuleType": "Any",
}
PACKAGE = re.compile(r"\btensorrt\w*\.(?:tensorrt\w*\.)?|\bnv(?:infer1|onnxparser)::(?:v_1_0::)?")
SIGNATURE = re.compile(r"^(?:\d+\. )?(\w*)\((.*)\) -> (.+?)\s*$")


@dataclass
class Description:
    """Lines such as `name(str, int) -> bool`, `name: int` and `name = bool`, by class."""

    version: str
    classes: dict[str, list[str]] = field(default_factory=dict)  # "" is the module itself
    enums: dict[str, list[str]] = field(default_factory=dict)


def describe(module: Any) -> Description:
    """Describe every class, enum and function of a module."""
    found = Description(str(module.__version__))
    found.classes[""] = []
    for name, thing in vars(module).items():
        if inspect.isclass(thing):
            _describe_class(found, name, thing)
        elif callable(thing):
            found.classes[""] += _callable_lines(name, thing, is_method=False)
    return found


def _describe_class(found: Description, name: str, cls: type[Any]) -> None:
    if hasattr(cls, "__members__"):
        found.enums[name] = list(cls.__members__)
        return
    lines = found.classes.setdefault(name, [])
    for base in reversed(cls.__mro__[:-1]):
        for member, value in vars(base).items():
            if inspect.isclass(value):
                _describe_class(found, f"{name}.{member}", value)
            elif isinstance(value, property):
                lines += _property_lines(member, value)
            elif callable(value) and (member == "__init__" or not member.startswith("_")):
                lines += _callable_lines(member, value, is_method=True)


def _property_lines(name: str, value: property) -> list[str]:
    getters = _signatures(value.fget, is_method=True)
    setters = _signatures(value.fset, is_method=True)
    read = [f"{name}: {result}" for _arguments, result in getters]
    return read + [f"{name} = {argument}" for (argument,), _result in setters]


def _callable_lines(name: str, value: Any, *, is_method: bool) -> list[str]:
    found = _signatures(value, is_method=is_method)
    return [f"{name}({', '.join(arguments)}) -> {result}" for arguments, result in found]


def _signatures(function: Any, *, is_method: bool) -> list[tuple[list[str], str]]:
    """Return (types of the arguments without self, type of the result) of each overload."""
    if function is None:
        return []
    if inspect.isfunction(function):
        overloads = _of_annotations(function)
    else:
        overloads = _of_docstring(function.__doc__ or "")
    first = 1 if is_method else 0
    return [(arguments[first:], result) for arguments, result in overloads]


def _of_annotations(function: Any) -> list[tuple[list[str], str]]:
    """Return an overload for each combination of a Python function's `A | B`; None is left out."""
    signature = inspect.signature(function)
    types = [str(parameter.annotation).split(" | ") for parameter in signature.parameters.values()]
    result = str(signature.return_annotation).removesuffix(" | None")
    return [(list(combination), result) for combination in product(*types)]


def _of_docstring(text: str) -> list[tuple[list[str], str]]:
    matches = filter(None, (SIGNATURE.match(line.strip()) for line in text.splitlines()))
    return [
        ([_type(part) for part in _split(match[2])], _normal(match[3]))
        for match in matches
        if match[2] != "*args, **kwargs"
    ]


def _split(arguments: str) -> list[str]:
    """Split at the commas that are outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(arguments):
        depth += (character in "([<{") - (character in ")]>}")
        if character == "," and depth == 0:
            parts.append(arguments[start:position])
            start = position + 1
    return [part for part in (*parts, arguments[start:]) if part.strip()]


def _type(argument: str) -> str:
    """Return the type in `name: type = default`."""
    return _normal(argument.partition(":")[2].partition(" = ")[0])


def _normal(type_: str) -> str:
    plain = PACKAGE.sub("", type_.strip()).replace("List[", "list[")
    return SAME_TYPES.get(plain, plain)


if __name__ == "__main__":
    print(json.dumps(asdict(describe(importlib.import_module(sys.argv[1])))))
