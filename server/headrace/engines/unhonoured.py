"""Names the fields that a user set and that we do not act on yet: pure.

What we act on is the list here, so a field that is new in the protocol is named, not passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.engines.batching_config import QUEUE_PARAMETERS, SERVICE_SECONDS
from headrace.escape import cited

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from headrace_proto.v1 import model_config_pb2 as config_pb

HONOURED = frozenset(
    {
        "name",
        "platform",
        "backend",
        "default_model_filename",
        "cc_model_filenames",
        "max_batch_size",
        "version_policy",
        "input.name",
        "input.data_type",
        "input.format",  # descriptive
        "input.dims",
        "input.reshape",
        "input.is_shape_tensor",
        "output.name",
        "output.data_type",
        "output.dims",
        "output.reshape",
        "output.label_filename",
        "output.is_shape_tensor",
        "instance_group.name",
        "instance_group.kind",
        "instance_group.count",
        "instance_group.gpus",
        "instance_group.profile",
        "dynamic_batching",
        "ensemble_scheduling.step",
        "model_warmup",
        "response_cache.enable",
        "optimization.input_pinned_memory.enable",  # true: blocks are pinned where there is a GPU
        "optimization.output_pinned_memory.enable",
        "optimization.cuda.graphs",
        "optimization.cuda.graph_spec.batch_size",
        "optimization.cuda.graph_spec.input",
        "optimization.cuda.graph_spec.graph_lower_bound.batch_size",
        "sequence_batching.max_sequence_idle_microseconds",
        "sequence_batching.control_input",
        "sequence_batching.direct",
        "sequence_batching.oldest",
        "sequence_batching.state.input_name",
        "sequence_batching.state.output_name",
        "sequence_batching.state.data_type",
        "sequence_batching.state.dims",
        "sequence_batching.state.initial_state",
        # Refused with a fault of their own.
        "sequence_batching.iterative_sequence",
        "sequence_batching.state.use_growable_memory",
        "batch_input",
        "batch_output",
        "model_transaction_policy.decoupled",
        "input.is_non_linear_format_io",
        "output.is_non_linear_format_io",
    }
)

MEANT_WHEN_EMPTY = frozenset(
    {"optimization.input_pinned_memory", "optimization.output_pinned_memory"}
)
"""Messages whose absence is no default: `{ enable: false }` is sent as an empty message."""

HONOURED_PARAMETERS = QUEUE_PARAMETERS | {SERVICE_SECONDS}
"""Keys of `parameters` that are acted on, or that we wrote ourselves."""


def unhonoured(config: config_pb.ModelConfig) -> list[str]:
    """Return the paths of the fields that are set but not acted on, in the file's order.

    Args:
        config: As written, not as completed: what we fill in ourselves is no news to the user.
    """
    return list(_walk(config, "", ""))


def _walk(message: Message, kind: str, path: str) -> Iterator[str]:
    """Yield paths below a message of which something is honoured; `kind` is its path, unindexed."""
    fields = message.ListFields()
    if kind in MEANT_WHEN_EMPTY and not fields:
        yield path
    for descriptor, value in fields:
        below, at = _join(kind, descriptor.name), _join(path, descriptor.name)
        if below in HONOURED:
            continue
        if below == "parameters":
            yield from (
                f'{at}["{cited(key)}"]' for key in sorted(value) if key not in HONOURED_PARAMETERS
            )
        elif not any(known.startswith(f"{below}.") for known in HONOURED):
            yield from _set_fields(value, at)
        elif hasattr(value, "ListFields"):
            yield from _walk(value, below, at)
        else:
            for index, each in enumerate(value):
                yield from _walk(each, below, f"{at}[{index}]")


def _set_fields(value: Any, path: str) -> Iterator[str]:
    """Yield the path of a value, or of what is set in it: an empty message says nothing."""
    if not hasattr(value, "ListFields"):
        yield path
        return
    for descriptor, inner in value.ListFields():
        yield from _set_fields(inner, f"{path}.{descriptor.name}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
