"""Settings of model control: what is loaded when, and what clients may change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from headrace.config.network import MIB
from headrace.config.option import option

EVERY_MODEL: Final = "*"


@dataclass(frozen=True, kw_only=True)
class ModelControlSettings:
    """When models are loaded and unloaded."""

    GROUP: ClassVar = "Model control"

    model_control_mode: Literal["none", "poll", "explicit"] = option(
        "none",
        "none: load every model at the start and keep it. poll: look at the repositories from time "
        "to time, and load and unload what has changed. explicit: load what --load-model names "
        "at the start, and then what clients ask for.",
    )
    repository_poll_s: int = option(
        15,
        "Seconds between two looks at the repositories, with --model-control-mode=poll.",
        flag="repository-poll-secs",
        low=1,
        high=86_400,
    )
    load_model: tuple[str, ...] = option(
        (),
        "Model to load at the start, with --model-control-mode=explicit. May be given several "
        "times; '*' alone loads every model.",
    )
    allow_model_uploads: bool = option(
        False,
        "Take model files from clients, with --model-control-mode=explicit: ONNX models alone. A "
        "model uses the machine as its maker wants it to: only where you trust those who may load.",
    )
    max_upload_bytes: int = option(
        1024 * MIB,
        "Bytes of model files from clients, of all models together that are loaded from such. One "
        "load is a request, and bounded by --grpc-max-request-bytes as well.",
        low=1024,
        high=2**50,
    )
    max_upload_files: int = option(32, "Files that one load may carry.", low=1, high=65_536)

    def control_faults(self) -> Iterator[tuple[str, str, str]]:
        """Yield (setting, what came, how to mend it) for what does not go together."""
        is_explicit = self.model_control_mode == "explicit"
        if self.load_model and not is_explicit:
            names, mode = ",".join(self.load_model), self.model_control_mode
            reason = f"got {names!r} together with --model-control-mode={mode}"
            yield "load_model", reason, "add --model-control-mode=explicit, or leave it out"
        if EVERY_MODEL in self.load_model and len(set(self.load_model)) > 1:
            reason = f"got {','.join(self.load_model)!r}, where '*' must be alone"
            yield "load_model", reason, "name the models, or '*' for every one"
        if self.allow_model_uploads and not is_explicit:
            reason = f"got true together with --model-control-mode={self.model_control_mode}"
            yield "allow_model_uploads", reason, "add --model-control-mode=explicit"
