"""What `headrace serve` says when it is up: where it listens, what it serves, on what."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from headrace.release import release
from headrace.table import print_facts, print_table

if TYPE_CHECKING:
    from headrace.model import ServedModel

OFF = "-"
"""Stands for what there is not, such as the address of metrics when they are off."""


@dataclass(frozen=True, slots=True)
class BannerModel:
    """One served version of a model."""

    name: str
    version: str
    platform: str
    max_batch_size: int  # rows; 0 = the model has no batch dimension
    slots: str  # their number, with a word on how they run where there is one to say; "-": none


@dataclass(frozen=True, slots=True)
class Banner:
    """All that is said.

    Attributes:
        grpc: HOST:PORT of the gRPC service.
        metrics: HOST:PORT of metrics and health, `OFF` when there is none.
        transport: "grpcio" or "native"; "grpcio, TLS" where that is on.
        device: Such as "host" or "cudart 0 (NVIDIA H200)".
        models: What is served.
        failures: Why other models are not served, by name.
    """

    grpc: str
    metrics: str
    transport: str
    device: str
    models: tuple[BannerModel, ...]
    failures: Mapping[str, str] = field(default_factory=dict)


def banner_model(model: ServedModel) -> BannerModel:
    """Return what is said of a served model."""
    slots = model.line.pool.slots
    inline = " (inline)" if slots and slots[0].is_inline else ""
    return BannerModel(
        name=model.spec.name,
        version=str(model.spec.version),
        platform=model.spec.platform,
        max_batch_size=model.spec.max_batch_size,
        slots=f"{len(slots)}{inline}" if slots else OFF,
    )


def print_banner(banner: Banner, stream: TextIO | None = None) -> None:
    """Print the banner, then the one line that programs wait for; standard output by default."""
    out = sys.stdout if stream is None else stream
    out.write(f"\nheadrace {release()}\n\n")
    metrics = "off" if banner.metrics == OFF else f"http://{banner.metrics}/metrics"
    facts = [
        ("gRPC", f"{banner.grpc} ({banner.transport})"),
        ("metrics", metrics),
        ("device", banner.device),
    ]
    print_facts(facts, out)
    out.write("\n")
    rows = [
        (model.name, model.version, model.platform, model.max_batch_size or "-", model.slots)
        for model in banner.models
    ]
    if rows:
        print_table(("model", "version", "platform", "max batch", "slots"), rows, out)
    if banner.failures:
        out.write("\nnot served:\n")
        print_facts([(f"  {name}", why) for name, why in sorted(banner.failures.items())], out)
    out.write(f"\nheadrace ready: grpc={banner.grpc} metrics={banner.metrics}\n")
    out.flush()
