"""Writes model repositories to disk and signatures in one line, for tests that load models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import text_format

from headrace.engines.base import Signature, TensorSpec
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Size = int | None


def write_model(
    repository: Path,
    name: str,
    config: str | None = None,
    *,
    versions: Sequence[int | str] = (1,),
    filename: str = "model.onnx",
    content: bytes = b"\x08\x08",
    extra: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a model's folder and return it."""
    folder = repository / name
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    for version in versions:
        (folder / str(version)).mkdir()
        (folder / str(version) / filename).write_bytes(content)
    for path, data in (extra or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def config_of(text: str) -> config_pb.ModelConfig:
    """Parse a configuration with protobuf itself."""
    return text_format.Parse(text, config_pb.ModelConfig())


def signature_of(inputs: str, outputs: str) -> Signature:
    """Read a signature from text: `name TYPE[2,?] …`; `!name` is a shape tensor."""
    return Signature(_specs(inputs), _specs(outputs))


def _specs(text: str) -> tuple[TensorSpec, ...]:
    words = text.split()
    return tuple(_spec(name, kind) for name, kind in zip(words[::2], words[1::2], strict=True))


def _spec(name: str, kind: str) -> TensorSpec:
    datatype, _, dims = kind.rstrip("]").partition("[")
    shape: tuple[Size, ...] = tuple(None if d == "?" else int(d) for d in dims.split(",") if d)
    return TensorSpec(name.lstrip("!"), datatype, shape, is_shape_tensor=name.startswith("!"))
