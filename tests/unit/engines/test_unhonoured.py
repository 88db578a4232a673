"""Fields that are set and not acted on are named, all of them, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.engines.unhonoured import HONOURED, unhonoured
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
from helpers.model_repository import config_of


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", []),
        (
            """name: "m" max_batch_size: 4 version_policy { all { } }
            cc_model_filenames { key: "8.0" }""",
            [],
        ),
        (
            'input { name: "x" dims: 1 reshape { } } output { name: "y" label_filename: "l" }',
            [],
        ),
        ('instance_group { name: "g" count: 2 kind: KIND_GPU gpus: 0 profile: "1" }', []),
        ("dynamic_batching { }", []),
        (
            """dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 9
            preserve_ordering: true priority_levels: 2 default_priority_level: 1
            default_queue_policy { max_queue_size: 3 default_timeout_microseconds: 5
            allow_timeout_override: true timeout_action: DELAY }
            priority_queue_policy { key: 2 value { max_queue_size: 1 } } }
            parameters { key: "headrace.target_p99_ms" value { string_value: "9" } }
            parameters { key: "headrace.queue_policy" value { string_value: "latest" } }""",
            [],
        ),
        (
            'input { name: "a" } input { name: "b" optional: true allow_ragged_batch: true }',
            ["input[1].allow_ragged_batch", "input[1].optional"],
        ),
        (
            """instance_group { }
            instance_group { passive: true host_policy: "p" rate_limiter { priority: 2 } }""",
            [
                "instance_group[1].rate_limiter.priority",
                "instance_group[1].passive",
                "instance_group[1].host_policy",
            ],
        ),
        ("response_cache { enable: true }", []),
        ("response_cache { enable: false }", []),
        ('model_warmup { name: "w" batch_size: 1 count: 2 } model_warmup { name: "v" }', []),
        (
            """optimization { priority: PRIORITY_MAX eager_batching: true cuda { graphs: true
            busy_wait_events: true graph_spec { batch_size: 1 graph_lower_bound { input { } } }
            } }""",
            [
                "optimization.priority",
                "optimization.cuda.busy_wait_events",
                "optimization.cuda.graph_spec[0].graph_lower_bound.input",
                "optimization.eager_batching",
            ],
        ),
        ("optimization { input_pinned_memory { enable: true } cuda { } }", []),
        (
            "optimization { output_pinned_memory { enable: false } }",
            ["optimization.output_pinned_memory"],
        ),
        (
            "optimization { execution_accelerators { gpu_execution_accelerator { } } }",
            ["optimization.execution_accelerators.gpu_execution_accelerator"],
        ),
        (
            'parameters { key: "b" value { string_value: "1" } } parameters { key: "a" }',
            ['parameters["a"]', 'parameters["b"]'],
        ),
        ('metric_tags { key: "a" value: "b" }', ["metric_tags"]),
        (
            'model_operations { op_library_filename: "x.so" }',
            ["model_operations.op_library_filename"],
        ),
        ("model_transaction_policy { decoupled: true }", []),
        (
            """sequence_batching { max_sequence_idle_microseconds: 1 direct { }
            control_input { name: "a" }
            state { input_name: "b" use_same_buffer_for_input_output: true } }""",
            ["sequence_batching.state[0].use_same_buffer_for_input_output"],
        ),
    ],
)
def test_names_what_is_set_and_not_acted_on(text: str, paths: list[str]) -> None:
    """By path, in the order of the protocol's field numbers."""
    assert sorted(unhonoured(config_of(text))) == sorted(paths)


def test_every_honoured_path_is_a_field() -> None:
    """A field renamed in the protocol cannot stay on the list unseen."""
    for path in HONOURED:
        message: Descriptor | None = config_pb.ModelConfig.DESCRIPTOR
        for name in path.split("."):
            assert message is not None, path
            assert name in message.fields_by_name, path
            message = message.fields_by_name[name].message_type
