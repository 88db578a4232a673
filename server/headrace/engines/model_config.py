"""A model's configuration from as written to as served: completed, checked, turned into a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engines.autocomplete import complete_defaults, complete_instances, complete_tensors
from headrace.engines.config_check import check
from headrace.engines.load_facts import LoadFacts
from headrace.engines.model_spec import Instances, ModelSpec, model_spec
from headrace.engines.tensor_map import TensorMap
from headrace.engines.unhonoured import unhonoured
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from headrace.engines.base import Signature

__all__ = [
    "Instances",
    "LoadFacts",
    "ModelSpec",
    "TensorMap",
    "check",
    "complete",
    "model_spec",
    "unhonoured",
]


def complete(
    config: config_pb.ModelConfig,
    signature: Signature,
    *,
    auto_complete: bool,
    facts: LoadFacts | None = None,
    path: str | None = None,
) -> config_pb.ModelConfig:
    """Return the configuration with everything filled in that it leaves open.

    The answer of the ModelConfig RPC. Completing it again changes nothing.

    Args:
        config: As written, with name and platform (`ModelSource.config`); it is not changed.
        signature: The engine's.
        auto_complete: Take inputs, outputs and batching from the engine. Without it these must be
            written; instance groups and defaults are filled in all the same, as Triton does.
        facts: What else is known.
        path: What errors call the file.

    Raises:
        ConfigError: The configuration contradicts itself about batching.
    """
    facts = facts or LoadFacts()
    whole = config_pb.ModelConfig()
    whole.CopyFrom(config)
    if auto_complete:
        complete_tensors(whole, signature, facts, path=path)
    complete_instances(whole, facts)
    complete_defaults(whole, facts)
    return whole
