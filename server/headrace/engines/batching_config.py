"""Reads the policy of a model's queue out of its configuration, and checks it: pure.

`dynamic_batching` means what it means to Triton, for models without a batch dimension, too: there
it is the policy of the queue alone. What Triton has no field for stands in `parameters`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.escape import cited

if TYPE_CHECKING:
    from headrace_proto.v1 import model_config_pb2 as config_pb

Fault = tuple[str, str]  # field, reason

TARGET_P99_MS: Final = "headrace.target_p99_ms"
QUEUE_POLICY: Final = "headrace.queue_policy"
SOURCE_WEIGHTS: Final = "headrace.source_weights"
SERVICE_SECONDS: Final = "headrace.service_seconds"
"""What batches take, by rows: ModelConfig tells it, and a file that was made of that has it."""
QUEUE_PARAMETERS: Final = frozenset({TARGET_P99_MS, QUEUE_POLICY, SOURCE_WEIGHTS})
FIFO, LATEST = "fifo", "latest"

MIN_WEIGHT, MAX_WEIGHT = 1e-3, 1e3
MAX_PRIORITIES: Final = 256
"""Each level has a queue of its own; more than a handful has not been seen in use."""


def batching_spec(config: config_pb.ModelConfig) -> BatchingSpec | None:
    """Return the policy of a model's queue; None where requests run alone, in order of arrival.

    Args:
        config: Completed, without a fault.
    """
    batches = config.HasField("dynamic_batching")
    if not batches and QUEUE_PARAMETERS.isdisjoint(config.parameters):
        return None
    batching = config.dynamic_batching
    has_levels = batching.priority_levels > 0
    policies = batching.priority_queue_policy if has_levels else {}
    return BatchingSpec(
        max_rows=max(config.max_batch_size, 1) if batches else 1,
        preferred_rows=tuple(sorted(set(batching.preferred_batch_size))),
        max_delay_s=batching.max_queue_delay_microseconds / 1e6,
        preserve_ordering=batching.preserve_ordering,
        num_priorities=batching.priority_levels if has_levels else 1,
        default_priority=batching.default_priority_level if has_levels else 1,
        default_policy=_policy(batching.default_queue_policy),
        policies=MappingProxyType({level: _policy(policies[level]) for level in sorted(policies)}),
        target_p99_s=_target_ms(config) / 1e3 if TARGET_P99_MS in config.parameters else 0.0,
        keeps_latest=_text(config, QUEUE_POLICY) == LATEST,
        source_weights=MappingProxyType(dict(_weights(config))),
    )


def check_batching(config: config_pb.ModelConfig) -> Iterator[Fault]:
    """Yield what is wrong with the policy of a model's queue, in the file's own notation."""
    if config.HasField("dynamic_batching"):
        yield from _check_sizes(config)
        yield from _check_priorities(config.dynamic_batching)
    if TARGET_P99_MS in config.parameters and not _target_ms(config) > 0:
        came = _text(config, TARGET_P99_MS)
        yield _field(TARGET_P99_MS), f'"{cited(came)}" is not a number of milliseconds above 0'
    if QUEUE_POLICY in config.parameters:
        came = _text(config, QUEUE_POLICY)
        if came not in (FIFO, LATEST):
            yield (
                _field(QUEUE_POLICY),
                f'"{cited(came)}" is unknown; expected "{FIFO}" or "{LATEST}"',
            )
    for source, weight in _weights(config):
        if not (source and MIN_WEIGHT <= weight <= MAX_WEIGHT):
            reason = (
                f'"{cited(_text(config, SOURCE_WEIGHTS))}" is not a list of sources and their '
                f"shares, each from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}; expected "
                '"camera-1=4, archive=0.5"'
            )
            yield _field(SOURCE_WEIGHTS), reason
            return


def _check_sizes(config: config_pb.ModelConfig) -> Iterator[Fault]:
    most = config.max_batch_size
    for index, size in enumerate(config.dynamic_batching.preferred_batch_size):
        if not 0 < size <= most:
            reason = f"{size} is not between 1 and max_batch_size, which is {most}"
            yield f"dynamic_batching.preferred_batch_size[{index}]", reason


def _check_priorities(batching: config_pb.ModelDynamicBatching) -> Iterator[Fault]:
    at, levels = "dynamic_batching", batching.priority_levels
    if levels > MAX_PRIORITIES:
        yield f"{at}.priority_levels", f"is {levels}; at most {MAX_PRIORITIES} are served"
    if levels and not 0 < batching.default_priority_level <= levels:
        reason = f"{batching.default_priority_level} is not between 1 and priority_levels, {levels}"
        yield f"{at}.default_priority_level", reason
    for level in sorted(batching.priority_queue_policy):
        if levels and not 0 < level <= levels:
            reason = f"there is no such level; priority_levels is {levels}"
            yield f"{at}.priority_queue_policy[{level}]", reason
    if batching.preserve_ordering and levels > 1:
        yield f"{at}.preserve_ordering", "cannot be kept with more than one priority level"
    policies = (batching.default_queue_policy, *batching.priority_queue_policy.values())
    if batching.preserve_ordering and any(map(_delays, policies)):
        reason = "cannot be kept where what waited too long runs later (timeout_action: DELAY)"
        yield f"{at}.preserve_ordering", reason


def _delays(policy: config_pb.ModelQueuePolicy) -> bool:
    return policy.default_timeout_microseconds > 0 and policy.timeout_action == policy.DELAY


def _policy(policy: config_pb.ModelQueuePolicy) -> QueuePolicy:
    return QueuePolicy(
        max_queue_size=policy.max_queue_size,
        default_timeout_s=policy.default_timeout_microseconds / 1e6,
        is_delayed=policy.timeout_action == policy.DELAY,
        may_override=policy.allow_timeout_override,
    )


def _target_ms(config: config_pb.ModelConfig) -> float:
    """Return the target in milliseconds; NaN for what is no finite number."""
    try:
        target_ms = float(_text(config, TARGET_P99_MS))
    except ValueError:
        return nan
    return target_ms if isfinite(target_ms) else nan


def _weights(config: config_pb.ModelConfig) -> Iterator[tuple[str, float]]:
    """Yield the sources that have a weight; NaN for what is no number.

    A source's name may hold any sign but a comma, "=" too: the last one counts.
    """
    for item in filter(None, map(str.strip, _text(config, SOURCE_WEIGHTS).split(","))):
        source, _, weight = item.rpartition("=")
        try:
            yield source.strip(), float(weight)
        except ValueError:
            yield source.strip(), nan


def _text(config: config_pb.ModelConfig, key: str) -> str:
    """Return a parameter's text, "" when there is none; a map's `[]` would add the key."""
    return config.parameters[key].string_value if key in config.parameters else ""


def _field(key: str) -> str:
    return f'parameters["{key}"]'
