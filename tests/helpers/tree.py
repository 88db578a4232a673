"""Reads the source tree without importing it: which modules there are, and what each imports."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = {
    "headrace": REPOSITORY / "server",
    "headrace_client": REPOSITORY / "client",
    "headrace_proto": REPOSITORY / "proto",
}


def is_generated(path: Path) -> bool:
    """Tell generated code, which no rule of ours judges."""
    return path.stem.endswith(("_pb2", "_pb2_grpc"))


@cache
def modules(package: str) -> dict[str, Path]:
    """Return every hand-written module of a package: dotted name → file."""
    root = PACKAGES[package]
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        if not is_generated(path):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


@cache
def syntax(path: Path) -> ast.Module:
    """Parse one file, once."""
    return ast.parse(path.read_text("utf-8"), str(path))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Give (line, dotted name) of every import, wherever in the file it stands.

    `from a import b` is given as `a.b`: whether b is a module or a name, it is found below `a`.
    """
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_within(name: str, package: str) -> bool:
    """Tell whether a dotted name is a package or lies below it."""
    return name == package or name.startswith(package + ".")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return the files that git tracks or would track: no build output, nothing ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    paths = (REPOSITORY / name for name in listed.stdout.split("\0") if name)
    return tuple(path for path in paths if path.is_file())
