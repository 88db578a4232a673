"""What `headrace serve` says when it is up: where it listens, what it serves, on what."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TextIO

from headrace.table import print_facts, print_table


@dataclass(frozen=True, slots=True)
class BannerModel:
    """One served version of a model."""

    name: str
    version: str
    platform: str
    max_batch_size: int  # rows; 0 = the model has no batch dimension
    slots: str  # their number, with a word on how they run where there is one to say


def print_banner(
    *,
    grpc: str,
    metrics: str,
    transport: str,
    device: str,
    models: Sequence[BannerModel],
    failures: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print the banner.

    Args:
        grpc: HOST:PORT of the gRPC service.
        metrics: HOST:PORT of metrics and health, "-" when they are off.
        transport: "grpcio" or "native"; with "TLS" behind it where that is on.
        device: Such as "host" or "cudart 0 (NVIDIA H200)".
        models: What is served.
        failures: Why other models are not served, by name.
        stream: Standard output by default.
    """
    out = sys.stdout if stream is None else stream
    out.write(f"\nheadrace {version('headrace-server')}\n\n")
    facts = [("gRPC", f"{grpc}  ({transport})"), ("metrics", _metrics_text(metrics))]
    print_facts([*facts, ("device", device)], out)
    out.write("\n")
    print_table(
        ("model", "version", "platform", "max batch", "slots"),
        [
            (model.name, model.version, model.platform, model.max_batch_size or "-", model.slots)
            for model in models
        ],
        out,
    )
    if failures:
        out.write("\nnot served:\n")
        print_facts([(f"  {name}", reason) for name, reason in sorted(failures.items())], out)
    out.write("\n")
    out.flush()


def _metrics_text(address: str) -> str:
    return "off" if address == "-" else f"http://{address}/metrics"
