"""Opens ONNX Runtime's sessions: on the CPU, or with the CUDA provider on a slot's own stream.

The CUDA provider is held to what a slot needs: a run enqueues on the slot's stream and returns.
Where the model allows it, sessions are opened as for the provider's own CUDA graphs, which are then
switched off run by run: replaying one waits for the GPU, it belongs to the thread that captured it
and is never given back. The slot captures the whole run instead.

The only file that imports onnxruntime.
"""

from __future__ import annotations

import functools
import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before the import: its wheels for Linux report usage to their maker, and a server must not.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort

from headrace.device.base import Device, Stream
from headrace.errors import ConfigError

log = logging.getLogger(__name__)

ort.set_default_logger_severity(3)  # errors: our own log says the rest

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
CONFINED_SINCE = (1, 24, 4)
"""A model may name files that hold its weights. 1.23.2 reads whatever is named, /etc/passwd, too;
1.24.4 refuses names that lead out of the model's folder (both were tried)."""

SHARES_INTERPRETER_SINCE = (1, 31)
"""Before, no other thread runs while a session is opened: so 1.20.1, 1.23.2 and 1.30.0, tried."""

NO_GPU_PACKAGE = (
    "this onnxruntime has no CUDA provider; install headrace-server[onnxruntime-gpu] in place of "
    "onnxruntime, or serve on the CPU with --device host"
)
NO_GPU_LIBRARIES = (
    "ONNX Runtime's CUDA provider does not load, most often because libraries of CUDA or cuDNN are "
    "missing or of another major version (its message above names the first); install "
    "onnxruntime-gpu[cuda,cudnn], or serve on the CPU with --device host"
)


@dataclass(frozen=True, slots=True)
class OrtOptions:
    """How sessions are made.

    Attributes:
        intra_op_threads: Threads inside one run; 1 leaves the cores to the slots.
    """

    intra_op_threads: int = 1


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session, and whether its runs stay on the GPU from begin to end.

    Only those may be captured in a CUDA graph, and only those may be left without waiting.
    """

    session: Any
    stays_on_gpu: bool = False


def is_confined() -> bool:
    """Say whether this release keeps models from reading files outside of their folder."""
    return _release() >= CONFINED_SINCE


@functools.cache
def warn_of_waiting() -> None:
    """Say so, once, where no other thread runs while this release opens a session."""
    if _release() < SHARES_INTERPRETER_SINCE:
        log.warning(
            "all requests wait while an ONNX model is loaded: onnxruntime before %s lets no other "
            "thread run meanwhile",
            ".".join(map(str, SHARES_INTERPRETER_SINCE)),
        )


def _release() -> tuple[int, ...]:
    digits = ort.__version__.split("+")[0].split(".")[:3]
    return tuple(int(part) for part in digits if part.isdigit())


def open_cpu_session(path: Path, options: OrtOptions) -> OpenSession:
    """Open a session on the CPU; runs are thread-safe and keep no state.

    Raises:
        ConfigError: The file is not a model that this runtime can load.
    """
    return OpenSession(_load(path, _settings(options), [CPU]))


def open_signature_session(path: Path) -> Any:
    """Open a session as fast as can be, to look at its inputs and outputs alone."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    return _load(path, settings, [CPU])


def open_cuda_session(
    path: Path, device: Device, options: OrtOptions, stream: Stream | None
) -> OpenSession:
    """Open a session on a GPU, on a slot's stream or, with None, on one of its own.

    Raises:
        ConfigError: The model cannot be loaded, or not on this GPU.
    """
    if CUDA not in ort.get_available_providers():
        raise ConfigError(NO_GPU_PACKAGE, path=str(path))
    _load_gpu_libraries()
    provider: dict[str, str] = {
        "device_id": str(device.index),
        "do_copy_in_default_stream": "1",  # copies inside the graph stay on the slot's stream
        "arena_extend_strategy": "kSameAsRequested",  # not the next power of two
        "prefer_nhwc": "1",  # the layout that tensor cores take: a fifth off ResNet-50 in FP16
    }
    if stream is None:
        return OpenSession(_load_on_gpu(path, options, provider))
    provider["user_compute_stream"] = str(int(stream.handle))
    session = _load_capturable(path, options, provider)
    if session is not None:
        return OpenSession(session, stays_on_gpu=True)
    return OpenSession(_load_on_gpu(path, options, provider))


def gpu_run_options(opened: OpenSession) -> Any:
    """Return the options of a run that only enqueues, where it stays on the GPU."""
    run_options = ort.RunOptions()
    if opened.stays_on_gpu:
        # The slot's stream and event say when the run is done; the run must not wait for it.
        run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        run_options.add_run_config_entry("gpu_graph_id", "-1")
    return run_options


def first_line(error: Exception) -> str:
    """Return what ONNX Runtime says, without its prefix and its stack."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def cpu_operators(session: Any) -> Counter[str]:
    """Count the operators that a GPU session runs on the CPU; nothing where it does not tell."""
    try:
        parts = session.get_provider_graph_assignment_info()
    except Exception:  # noqa: BLE001 -- versions before 1.24 do not know it; others raise their own
        return Counter()
    return Counter(
        node.op_type for part in parts if part.ep_name == CPU for node in part.get_nodes()
    )


@functools.cache
def _load_gpu_libraries() -> None:
    """Load CUDA's libraries out of NVIDIA's wheels, where they are installed as such."""
    preload = getattr(ort, "preload_dlls", None)
    if preload is not None:
        preload(directory="")


def _settings(options: OrtOptions) -> Any:
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.intra_op_threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4  # what it calls errors is raised, too, and logged escaped
    # Spinning would take a core from the other slots between two operators.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return settings


def _load_capturable(path: Path, options: OrtOptions, provider: dict[str, str]) -> Any | None:
    """Load a session that stays on the GPU; None when the model makes that impossible.

    The provider itself refuses operators on the CPU and control flow. Not what one of its operators
    reads on the CPU: such an input is copied there when it is bound, and never again.
    """
    try:
        session = _load_on_gpu(path, options, {**provider, "enable_cuda_graph": "1"}, severity=4)
    except ConfigError as error:
        log.info("%s does not stay on the GPU: %s", path, error)
        return None
    places = {info.name for info in _memory_infos(session)}
    return session if places == {"Cuda"} else None


def _memory_infos(session: Any) -> list[Any]:
    """Say where the session wants its inputs and leaves its outputs; nothing before 1.23."""
    try:
        return [*session.get_input_memory_infos(), *session.get_output_memory_infos()]
    except AttributeError:
        return []


def _load_on_gpu(
    path: Path, options: OrtOptions, provider: dict[str, str], *, severity: int = 3
) -> Any:
    settings = _settings(options)
    settings.log_severity_level = severity
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = _load(path, settings, [(CUDA, provider), CPU])
    if CUDA not in session.get_providers():
        raise ConfigError(NO_GPU_LIBRARIES, path=str(path))
    return session


def _load(path: Path, settings: Any, providers: Sequence[Any]) -> Any:
    if not path.is_file():
        raise ConfigError("there is no such file", path=str(path))
    try:
        return ort.InferenceSession(str(path), settings, providers=list(providers))
    except Exception as error:
        raise ConfigError(
            f"ONNX Runtime cannot load it: {first_line(error)}", path=str(path)
        ) from error
