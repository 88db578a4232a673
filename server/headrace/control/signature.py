"""What a model looks like on disk, so that changes can be told: names, sizes and times of files.

Size and time of modification alone: numbers of files and their other times change by themselves on
the network file systems that model repositories lie on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from headrace.engines.version_policy import parse_version

MAX_DEPTH: Final = 4
"""Folders below a model's own that are looked into: a version, an ONNX model of several files, and
room to spare. Links are followed, so that there must be an end."""

SINGLE_FILE_VERSION: Final = 1


class File(NamedTuple):
    """One file of a model; what is no file any more when it is looked at has no size."""

    name: str  # from the model's folder on
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Signature:
    """The files of a model.

    Attributes:
        common: What all versions depend on: the configuration, labels, data for warm-up.
        versions: The files of each version.
    """

    common: tuple[File, ...] = ()
    versions: Mapping[int, tuple[File, ...]] = field(default_factory=dict)

    def size_bytes(self, version: int) -> int:
        """Return the bytes of a version's files."""
        return sum(file.size_bytes for file in self.versions.get(version, ()))

    def unchanged(self, before: Signature | None, wanted: Collection[int]) -> set[int]:
        """Return those of the wanted versions that are as they were."""
        if before is None or before.common != self.common:
            return set()
        now = self.versions
        return {each for each in wanted if each in now and before.versions.get(each) == now[each]}


def read_signature(place: Path) -> Signature:
    """Look at a model's folder, or at a model that is one file; nothing on disk is an error."""
    if place.is_file():
        return Signature(versions={SINGLE_FILE_VERSION: (_file(place, place.name),)})
    common: list[File] = []
    versions: dict[int, list[File]] = {}
    for file in _files(place, "", MAX_DEPTH):
        top, _, rest = file.name.partition("/")
        version = parse_version(top) if rest else None
        (common if version is None else versions.setdefault(version, [])).append(file)
    return Signature(
        tuple(common), {version: tuple(files) for version, files in sorted(versions.items())}
    )


def _files(folder: Path, prefix: str, depth: int) -> Iterator[File]:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return
    for name in names:
        path = folder / name
        if name.startswith("."):  # no part of a model; mounts keep their own data there
            continue
        if not path.is_dir():
            yield _file(path, prefix + name)
        elif depth:
            yield from _files(path, f"{prefix}{name}/", depth - 1)


def _file(path: Path, name: str) -> File:
    try:
        stat = path.stat()
    except OSError:
        return File(name, 0, 0)
    return File(name, stat.st_size, stat.st_mtime_ns)
