"""What compiled bindings offer, each read in a process of its own, and a comparison with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from helpers.trt_describe import Description
from helpers.trt_wheels import Wheel, WheelError, bindings

DESCRIBE = Path(__file__).with_name("trt_describe.py")


@cache
def describe(wheel: Wheel) -> Description:
    """Describe the real bindings, each in a process of its own: their libraries are not there."""
    try:
        folder = bindings(wheel)
    except WheelError as error:
        pytest.skip(f"no bindings to compare with: {error}")
    ran = subprocess.run(
        [sys.executable, str(DESCRIBE), wheel.module],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return Description(**json.loads(ran.stdout))


def missing(
    used: Mapping[str, tuple[str, ...]], real: Mapping[str, list[str]], owner: str
) -> list[str]:
    """Return the lines of one owner that the real thing lacks."""
    return [f"{owner}.{line}" for line in used[owner] if line not in real.get(owner, [])]


def member(line: str) -> str:
    """The name in a line such as `name(str) -> bool`, `name: int` or `name = bool`."""
    return line.partition("(")[0].partition(":")[0].partition(" =")[0]
