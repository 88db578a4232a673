"""Label files of outputs: one label a line, for answers that name classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from headrace.engines.pbtxt import read_text
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace_proto.v1 import model_config_pb2 as config_pb

MAX_LABEL_FILE_BYTES = 16 << 20
"""The longest public label lists (tens of thousands of classes) take about 1 MiB."""


def read_labels(config: config_pb.ModelConfig, folder: Path) -> dict[str, tuple[str, ...]]:
    """Read the labels of all outputs that have some: by output name, in class order.

    Raises:
        ConfigError: A file is missing, not text, or not inside the model's folder.
    """
    return {
        output.name: _labels(_label_path(output.label_filename, folder))
        for output in config.output
        if output.label_filename
    }


def check_labels(config: config_pb.ModelConfig, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (field, reason) for each label file that cannot be read."""
    for index, output in enumerate(config.output):
        if output.label_filename:
            try:
                _labels(_label_path(output.label_filename, folder))
            except ConfigError as fault:
                yield f"output[{index}].label_filename", f"{fault.path}: {fault.reason}"


def _label_path(filename: str, folder: Path) -> Path:
    parts = PurePosixPath(filename)
    if parts.is_absolute() or ".." in parts.parts or "\0" in filename:
        raise ConfigError("leads out of the model's folder; put the labels into it", path=filename)
    return folder / parts


def _labels(path: Path) -> tuple[str, ...]:
    text = read_text(path, MAX_LABEL_FILE_BYTES)
    return tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))
