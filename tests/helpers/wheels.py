"""Builds the three wheels, and puts them into environments that know nothing of this repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.tree import PACKAGES, REPOSITORY

if TYPE_CHECKING:
    from email.message import Message

UV = Path(sys.executable).with_name("uv")
DISTRIBUTIONS = {package: root.name for package, root in PACKAGES.items()}
COMMAND_TIMEOUT_S = 150


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command without this process's Python settings; return its output, or fail with it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}"
    return done.stdout


def build(folder: Path) -> dict[str, Path]:
    """Build every distribution into a folder; return import package → wheel."""
    for package, source in DISTRIBUTIONS.items():
        out = folder / package
        run(
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-t",
            "wheel",
            "-d",
            out,
            cwd=REPOSITORY / source,
        )
    return {package: next((folder / package).glob("*.whl")) for package in DISTRIBUTIONS}


def metadata(wheel: Path) -> Message:
    """Read the METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def requirements(wheel: Path) -> list[str]:
    """Return what a wheel requires, with and without extras."""
    return metadata(wheel).get_all("Requires-Dist") or []


def oldest(wheel: Path) -> list[str]:
    """Return the requirements of a wheel, without extras, pinned to their lower bounds."""
    bounds = (
        re.match(r"([\w-]+)>=([\d.]+)", text)
        for text in requirements(wheel)
        if "extra ==" not in text and not text.startswith("headrace")
    )
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


class Environment:
    """A fresh virtual environment, filled by uv from wheels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        run(UV, "venv", "--quiet", "--python", sys.executable, folder)

    def install(self, *requirements: str, is_pinned: bool = True) -> None:
        """Install wheels or requirements, held to constraints.txt or not."""
        pins = ("--constraint", REPOSITORY / "constraints.txt") if is_pinned else ()
        python = self.bin / "python"
        run(UV, "pip", "install", "--quiet", "--python", python, *pins, *requirements)

    def python(self, script: str) -> str:
        """Run a script in the environment, in its own folder, away from the sources."""
        return run(self.bin / "python", "-W", "error", "-c", script, cwd=self.folder)

    @cached_property
    def distributions(self) -> dict[str, str]:
        """What is installed: normalized name → version."""
        lines = run(UV, "pip", "freeze", "--quiet", "--python", self.bin / "python").splitlines()
        pairs = (line.replace(" @ ", "==").split("==", 1) for line in lines if line)
        return {pair[0]: pair[1] for pair in pairs}
