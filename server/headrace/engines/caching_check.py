"""Says of which models replies cannot be kept: pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace_proto.v1 import model_config_pb2 as config_pb

FIELD: Final = "response_cache.enable"


def check_caching(config: config_pb.ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield (field, reason) where replies are to be kept of a model that has none to keep."""
    if not config.response_cache.enable:
        return
    if config.HasField("sequence_batching"):
        reason = "the answer depends on what the sequence sent before"
        yield FIELD, f"is true together with sequence_batching: {reason}"
    if config.model_transaction_policy.decoupled:
        yield FIELD, "is true together with model_transaction_policy.decoupled: it has many replies"
