"""Settings of what runs inside: models, device, engines, the server's life, its log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from headrace.config.network import MIB
from headrace.config.option import option


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which models are served."""

    GROUP: ClassVar = "Models"

    model_files: tuple[Path, ...] = option(
        (),
        "Model files to serve without a repository: each under its file name, as version 1.",
        is_argument=True,
    )
    model_repository: tuple[Path, ...] = option(
        (),
        "Folder with models in Triton's layout: MODEL/VERSION/model.onnx or model.plan, and "
        "MODEL/config.pbtxt if wanted. May be given several times.",
        aliases=("model-store",),
    )
    exit_on_error: bool = option(
        True, "Exit when a model cannot be loaded, instead of serving the others."
    )
    strict_readiness: bool = option(
        True, "Be ready only when every model is, instead of when the server answers."
    )
    disable_auto_complete_config: bool = option(
        False,
        "Demand a complete config.pbtxt instead of filling in what the model file tells.",
        aliases=("strict-model-config",),
    )
    allow_host_code: bool = option(
        False,
        "Load plans that carry host code. Such a plan runs native code of its maker in this "
        "process: only for plans you built.",
    )


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """Where models run, and how work is fed to them."""

    GROUP: ClassVar = "Device and engines"

    device: Literal["auto", "host", "cudart"] = option(
        "auto", "cudart: GPUs. host: the CPU. auto: GPUs when there are any."
    )
    gpus: tuple[int, ...] = option(
        (),
        "Index of the GPU to use. One process serves one GPU: start a server for each.",
        low=0,
        high=1023,
        default_text="0",
    )
    default_num_slots: int = option(
        0,
        "Slots (streams with an execution context) of a model whose config.pbtxt has no "
        "instance_group; 0 = two on a GPU, one for each core on the CPU.",
        low=0,
        high=256,
    )
    pinned_memory_pool_bytes: int = option(
        256 * MIB,
        "Host memory for the requests' tensors, in bytes; pinned where there is a GPU.",
        flag="pinned-memory-pool-byte-size",
        low=MIB,
        high=2**50,
    )
    ort_intra_op_threads: int = option(
        1,
        "Threads inside one run of ONNX Runtime on the CPU. One for each slot gives the most "
        "throughput, more the least latency of a lonely request.",
        low=1,
        high=1024,
    )
    cuda_graphs: Literal["auto", "on", "off"] = option(
        "auto",
        "CUDA graphs of models whose config.pbtxt has no optimization.cuda. auto: for ONNX models "
        "on a GPU, whose launches cost the host most. on: for plans as well. off: none.",
    )
    poller_wait: Literal["auto", "spin", "nap", "predict", "notify"] = option(
        "auto",
        "How the poller waits while work is in flight. spin: least latency, a core burned. nap: "
        "sleep between sweeps. predict: sleep through most of what the work usually takes, then "
        "look densely. notify: be woken, where the device can. auto: notify, on a GPU predict.",
    )
    nap_us: int = option(30, "Microseconds of a nap between two sweeps.", low=1, high=200)


@dataclass(frozen=True, kw_only=True)
class LifeSettings:
    """The server's name and its end."""

    GROUP: ClassVar = "Server"

    server_id: str = option(
        "headrace",
        "Name of this server in its metadata.",
        flag="id",
    )
    exit_timeout_s: float = option(
        30.0,
        "Seconds that requests in flight have to finish when the server is told to stop.",
        flag="exit-timeout-secs",
        low=0,
        high=86_400,
    )
    lame_duck_s: float = option(
        0.0,
        "Seconds to go on serving, but not be ready, before that: the time in which load "
        "balancers look elsewhere.",
        flag="lame-duck-secs",
        low=0,
        high=86_400,
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What is written to standard error."""

    GROUP: ClassVar = "Log"

    log_verbose: int = option(
        0, "0: no debug messages. 1: headrace's. 2: also those of libraries.", low=0, high=9
    )
    log_info: bool = option(True, "Log what happens.")
    log_warning: bool = option(True, "Log what may be wrong.")
    log_error: bool = option(True, "Log what went wrong.")
    log_format: Literal["default", "json"] = option(
        "default", "default: lines for people. json: one object a line, for collectors."
    )
