"""Magika, the detector of file types, with its network answered by a server.

The package keeps everything else: reading files, features, thresholds, labels. The ONNX model is
the one inside the package; it is copied into a repository when needed, and never committed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import magika
import numpy as np
import sklearn
from numpy.typing import NDArray

from headrace_client import Client

MODEL = "magika"
PACKAGE = Path(magika.__file__).parent
CONFIG = """\
name: "magika"
platform: "onnxruntime_onnx"
max_batch_size: 64
"""


class ServedMagika(magika.Magika):
    """`magika.Magika` whose network runs wherever `client` leads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        super().__init__()

    def _init_onnx_session(self) -> _ServedSession:
        return _ServedSession(self._client)


class _ServedSession:
    """What Magika asks of an ONNX Runtime session: `run` by names."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def run(
        self, outputs: Sequence[str], feeds: Mapping[str, Sequence[Sequence[int]]]
    ) -> list[NDArray[Any]]:
        inputs = {name: np.array(rows, np.int32) for name, rows in feeds.items()}
        answers = self.client.infer(MODEL, inputs, outputs=outputs, timeout_s=30)
        return [answers[name] for name in outputs]


def model_path() -> Path:
    """Return the ONNX file inside the package."""
    (path,) = PACKAGE.glob("models/*/model.onnx")
    return path


def write_repository(folder: Path) -> None:
    """Lay the model out as a repository of one model."""
    version = folder / MODEL / "1"
    version.mkdir(parents=True)
    shutil.copyfile(model_path(), version / "model.onnx")
    (folder / MODEL / "config.pbtxt").write_text(CONFIG)


def real_files() -> list[Path]:
    """Return files of ten types that are there wherever this runs: parts of installed packages."""
    learn, numpy = Path(sklearn.__file__).parent / "datasets", Path(np.__file__).parent
    (readme,) = PACKAGE.glob("models/*/README.md")
    (library,) = numpy.glob("_core/_multiarray_umath.*.so")
    return [
        learn / "images" / "china.jpg",
        learn / "data" / "iris.csv",
        learn / "data" / "digits.csv.gz",
        learn / "descr" / "digits.rst",
        numpy / "__init__.py",
        numpy / "_core" / "include" / "numpy" / "arrayobject.h",
        library,
        PACKAGE / "config" / "content_types_kb.min.json",
        readme,
        model_path(),
    ]
