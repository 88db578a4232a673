"""Checks a completed configuration by itself and against the engine; collects every fault: pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.engines.batching_config import check_batching
from headrace.engines.caching_check import check_caching
from headrace.engines.instance_check import check_instances
from headrace.engines.labels import check_labels
from headrace.engines.load_facts import LoadFacts, max_rows
from headrace.engines.platforms import PLATFORMS
from headrace.engines.sequence_check import check_sequences
from headrace.engines.tensor_check import check_tensors
from headrace.engines.warmup_config import check_warmup
from headrace.errors import ConfigError
from headrace.escape import cited
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.engines.base import Signature

Fault = tuple[str, str]  # field, reason

_NOT_SERVED = {
    "ensemble_scheduling": 'goes with platform "ensemble" alone',
    "batch_input": "inputs made by the server from a batch are not served yet",
    "batch_output": "outputs scattered by the server over a batch are not served yet",
}


def check(
    config: config_pb.ModelConfig,
    signature: Signature | None,
    *,
    facts: LoadFacts | None = None,
    folder: Path | None = None,
    path: str | None = None,
    may_be_partial: bool = False,
) -> list[ConfigError]:
    """Return everything that is wrong with a completed configuration, in the file's order.

    Args:
        config: As `complete` returned it.
        signature: The engine's, None to check the configuration by itself.
        facts: What else is known.
        folder: The model's, to look for label files; None to leave them out.
        path: What errors call the file.
        may_be_partial: What auto-completion could fill in may be missing.
    """
    facts = facts or LoadFacts()
    faults = [*_identity(config), *_not_served(config), *_rows(config, signature, facts)]
    faults += check_tensors(config, signature, may_be_partial=may_be_partial)
    faults += check_instances(config, facts)
    faults += check_batching(config)
    faults += check_caching(config)
    faults += check_sequences(config, signature, folder)
    faults += check_warmup(config, folder)
    faults += check_labels(config, folder) if folder else ()
    return [ConfigError(reason, path=path, field=field) for field, reason in faults]


def _identity(config: config_pb.ModelConfig) -> Iterator[Fault]:
    if not config.name:
        yield "name", "is missing"
    if not any(
        (each.name, each.backend) == (config.platform, config.backend) for each in PLATFORMS
    ):
        expected = " or ".join(f'"{each.name}"' for each in PLATFORMS)
        yield "platform", f'"{cited(config.platform)}" is not served here; expected {expected}'


def _not_served(config: config_pb.ModelConfig) -> Iterator[Fault]:
    there = {descriptor.name for descriptor, _ in config.ListFields()}
    for field, reason in _NOT_SERVED.items():
        if field in there:
            yield field, reason
    if config.model_transaction_policy.decoupled:
        reason = "decoupled models are not served yet; an engine answers each request once"
        yield "model_transaction_policy.decoupled", reason


def _rows(
    config: config_pb.ModelConfig, signature: Signature | None, facts: LoadFacts
) -> Iterator[Fault]:
    wanted = config.max_batch_size
    if wanted < 0:
        yield "max_batch_size", f"{wanted} is negative; expected 0 (no batching) or more"
    if wanted <= 0 or signature is None:
        return
    limit = max_rows(config, signature, facts)
    if limit == 0:
        reason = (
            f"is {wanted}, but the model has no batch dimension: not all its inputs and outputs "
            "begin with a dynamic dimension; set it to 0 and write all dimensions into dims"
        )
        yield "max_batch_size", reason
    elif limit is not None and wanted > limit:
        reason = (
            f"is {wanted}, but the engine takes {limit} rows at most (its optimization profile, "
            "or its fixed first dimension)"
        )
        yield "max_batch_size", reason
