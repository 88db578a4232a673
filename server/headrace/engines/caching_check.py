"""Says of which models replies cannot be kept: pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace_proto.v1 import model_config_pb2 as config_pb

FIELD: Final = "response_cache.enable"

_REASONS: Final = {
    "sequence_batching": "the answer depends on what the sequence sent before",
    "ensemble_scheduling": "set it in the configurations of the models that it is made of",
}


def check_caching(config: config_pb.ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield (field, reason) where replies are to be kept of a model that has none to keep."""
    if not config.response_cache.enable:
        return
    there = {descriptor.name for descriptor, _ in config.ListFields()}
    for field, reason in _REASONS.items():
        if field in there:
            yield FIELD, f"is true together with {field}: {reason}"
    if config.model_transaction_policy.decoupled:
        yield FIELD, "is true together with model_transaction_policy.decoupled: it has many replies"
