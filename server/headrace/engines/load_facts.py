"""What is known when a model loads, besides its configuration and signature: pure, no device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engines.model_folder import DEFAULT_MAX_BATCH_SIZE
from headrace.engines.platforms import TENSORRT

if TYPE_CHECKING:
    from headrace.engines.base import Signature, TensorSpec
    from headrace_proto.v1 import model_config_pb2 as config_pb


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """The surroundings that a configuration is completed and checked against.

    Attributes:
        gpus: Indices of the GPUs that may be used; empty on a CPU, None when it does not matter:
            a check on a machine that will not serve.
        num_slots: Slots on each device where the configuration gives no count; 0 leaves it open.
        profile_rows: Most rows of each optimization profile of a plan; empty when not known.
        default_max_batch_size: For engines that set no limit themselves.
        has_graphs: CUDA graphs are on where the configuration does not speak of them.
    """

    gpus: tuple[int, ...] | None = None
    num_slots: int = 0
    profile_rows: tuple[int, ...] = ()
    default_max_batch_size: int = DEFAULT_MAX_BATCH_SIZE
    has_graphs: bool = False


def profile_index(text: str) -> int | None:
    """Return the optimization profile that an instance group names, None when it names none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def profiles_of(config: config_pb.ModelConfig) -> tuple[int, ...]:
    """Return the optimization profiles that instance groups ask for; empty when all may be used.

    Triton takes the first where none is named; ours takes whichever fits a request.
    """
    named = (profile_index(text) for group in config.instance_group for text in group.profile)
    return tuple(sorted({index for index in named if index is not None}))


def max_rows(config: config_pb.ModelConfig, signature: Signature, facts: LoadFacts) -> int | None:
    """Return the most rows that the engine takes in one batch.

    Rows are the first dimension, which all inputs and outputs must have; shape tensors have none.

    Returns:
        0 when the engine has no batch dimension, None when it sets no limit.
    """
    first = {_first_dimension(spec) for spec in _batched(signature)}
    if first == {None}:
        wanted = profiles_of(config) or range(len(facts.profile_rows))
        rows = [rows for index, rows in enumerate(facts.profile_rows) if index in wanted]
        return max(rows) if rows else None
    if len(first) != 1 or config.platform != TENSORRT.name:
        return 0
    # As for Triton, the fixed first dimension of a plan is its batch.
    return first.pop()


def has_fixed_rows(signature: Signature) -> bool:
    """Say whether an input or output begins with a fixed dimension."""
    return any(_first_dimension(spec) is not None for spec in _batched(signature))


def _batched(signature: Signature) -> Iterable[TensorSpec]:
    return (s for s in (*signature.inputs, *signature.outputs) if not s.is_shape_tensor)


def _first_dimension(spec: TensorSpec) -> int | None:
    return spec.shape[0] if spec.shape else 0
