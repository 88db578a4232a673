"""Model files that clients send with a load: checked names, a private folder, bounded bytes.

Rules
- A client's text becomes part of a path only if each part of it is plain: ASCII letters, digits,
  '.', '_' and '-', no '.' in front. So it cannot lead anywhere, nor mean anything to a shell.
- The folder can be entered by this user alone, and so can what lies in it. Files are made anew:
  nothing that is there, and no link, is ever opened.
- `put` and `remove` are called on the loading thread, `close` when it has ended.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.control.own_folder import OwnFolder
from headrace.errors import RequestError, TooLargeError, UnsupportedError
from headrace.escape import printable

log = logging.getLogger(__name__)

FOLDERS: Final = "headrace-models-"  # how the names of all servers' folders begin
PREFIX: Final = "file:"  # of the parameters that hold a file, as in Triton
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_MAX_PARTS: Final = 3  # VERSION/model.onnx/weights.bin, where a model is a folder
_RESERVED: Final = "config.pbtxt"
_SHOWN_CHARS: Final = 64


def check_plain(what: str, name: str) -> None:
    """Refuse a name that is not plain.

    Raises:
        RequestError: Says what a name may be.
    """
    if _PLAIN.fullmatch(name) is None:
        raise RequestError(
            f"{what} '{printable(name, _SHOWN_CHARS)}' cannot be used with files: expected ASCII "
            "letters, digits, '_', '-' and '.', none of the last two in front, at most 128 of them"
        )


@dataclass(frozen=True, slots=True)
class UploadBounds:
    """What clients may send.

    Attributes:
        is_allowed: Anything at all.
        max_files: How many files one load may carry.
        max_bytes: How many bytes all models that lie here may have together.
    """

    is_allowed: bool = False
    max_files: int = 32
    max_bytes: int = 1 << 30


class Uploads:
    """The folder of all uploaded models; made when the first comes."""

    def __init__(self, bounds: UploadBounds) -> None:
        self._bounds = bounds
        self._root: OwnFolder | None = None
        self._sizes: dict[Path, int] = {}
        self._number = 0

    def check(self, files: Mapping[str, bytes]) -> None:
        """Refuse files that cannot be put anywhere; any thread may call it.

        Args:
            files: By their parameter's name, such as "file:1/model.onnx".

        Raises:
            UnsupportedError: No files are taken.
            RequestError: A name is no plain one, or occurs as a file and as a folder.
            TooLargeError: They are too many or too large.
        """
        bounds = self._bounds
        if not bounds.is_allowed:
            raise UnsupportedError(
                "model files are not taken from clients; the operator can allow them with "
                "--allow-model-uploads"
            )
        if len(files) > bounds.max_files:
            raise TooLargeError(
                f"the load carries {len(files)} files; this server takes {bounds.max_files}, the "
                "operator can raise --max-upload-files"
            )
        self._check_bytes(files, 0)
        paths = {Path(_relative(name)): name for name in files}
        folders = {parent for path in paths for parent in path.parents}
        for path, name in paths.items():
            if path in folders:
                raise RequestError(f"'{name}' is a file and the folder of another file")

    def put(self, name: str, files: Mapping[str, bytes]) -> Path:
        """Write a model's files, which were checked, into a folder of their own and return it.

        Raises:
            RequestError: A name is not plain.
            TooLargeError: With what lies here already it is more than may.
            OSError: The disk is full, or there is none to write to. Nothing is left.
        """
        check_plain("the name of the model", name)
        size_bytes = self._check_bytes(files, sum(self._sizes.values()))
        if self._root is None:
            self._root = OwnFolder(FOLDERS)
        self._number += 1
        folder = self._root.path / str(self._number) / name
        self._sizes[folder] = size_bytes
        try:
            for parameter, content in files.items():
                _write(folder / _relative(parameter), content)
        except BaseException:
            self.remove(folder)
            raise
        return folder

    def remove(self, folder: Path) -> None:
        """Remove a model's folder; a second call does nothing."""
        if self._sizes.pop(folder, None) is not None:
            shutil.rmtree(folder.parent, ignore_errors=True)

    def _check_bytes(self, files: Mapping[str, bytes], present_bytes: int) -> int:
        size_bytes = sum(map(len, files.values()))
        if present_bytes + size_bytes > self._bounds.max_bytes:
            raise TooLargeError(
                f"the model files have {size_bytes} bytes, those of other clients that are loaded "
                f"{present_bytes}; this server takes {self._bounds.max_bytes}, the operator can "
                "raise --max-upload-bytes"
            )
        return size_bytes

    def hidden(self, text: str) -> str:
        """Return a text without the path of the folder, which is nobody's business."""
        if self._root is None:
            return text
        return re.sub(re.escape(f"{self._root.path}/") + r"\d+/", "", text)

    def close(self) -> None:
        """Remove everything; a second call does nothing."""
        root, self._root = self._root, None
        if root is not None:
            root.close()


def _relative(parameter: str) -> str:
    """Return where a file lies in the model's folder.

    Raises:
        RequestError: Its name is not plain.
    """
    parts = parameter.removeprefix(PREFIX).split("/")
    if len(parts) > _MAX_PARTS:
        raise RequestError(
            f"'{printable(parameter, _SHOWN_CHARS)}' lies too deep: expected "
            f"'{PREFIX}VERSION/FILE', at most {_MAX_PARTS} parts"
        )
    for part in parts:
        check_plain("the file name", part)
    if parts == [_RESERVED]:
        raise RequestError(f"'{parameter}': the configuration goes into the parameter 'config'")
    return "/".join(parts)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
