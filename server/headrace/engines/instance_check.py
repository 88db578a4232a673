"""Checks `instance_group`: where a model may run, in how many slots, with which profiles: pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.engines.load_facts import profile_index
from headrace.engines.platforms import TENSORRT
from headrace.escape import cited
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from headrace.engines.load_facts import LoadFacts

Group = config_pb.ModelInstanceGroup


def check_instances(config: config_pb.ModelConfig, facts: LoadFacts) -> Iterator[tuple[str, str]]:
    """Yield (field, reason) for everything that is wrong with the instance groups."""
    for index, group in enumerate(config.instance_group):
        at = f"instance_group[{index}]"
        if group.count < 0:
            yield f"{at}.count", f"{group.count} is negative; expected the number of slots"
        yield from _kind(config, group, facts, at)
        yield from _profiles(config, group, facts, at)


def _kind(
    config: config_pb.ModelConfig, group: Group, facts: LoadFacts, at: str
) -> Iterator[tuple[str, str]]:
    is_plan = config.platform == TENSORRT.name
    if group.kind == Group.KIND_MODEL:
        yield f"{at}.kind", "KIND_MODEL is not served; expected KIND_GPU, KIND_CPU or KIND_AUTO"
    if group.kind == Group.KIND_CPU and is_plan:
        yield f"{at}.kind", "a TensorRT plan runs on a GPU only, and this is (or came to) KIND_CPU"
    elif group.kind == Group.KIND_CPU and facts.gpus:
        reason = "a model on the CPU is not served beside a GPU yet; serve it with --device host"
        yield f"{at}.kind", reason
    if group.kind in (Group.KIND_CPU, Group.KIND_MODEL) and group.gpus:
        yield f"{at}.gpus", f"{Group.Kind.Name(group.kind)} cannot name GPUs; leave them out"
    if group.kind != Group.KIND_GPU or facts.gpus is None:
        return
    # A model that was ordered onto a GPU must not crawl on a CPU unseen; Triton refuses it too.
    if not facts.gpus:
        reason = (
            "KIND_GPU, but no GPU can be used here; KIND_AUTO takes the CPU where there is none"
        )
        yield f"{at}.kind", reason
        return
    for gpu in group.gpus:
        if gpu not in facts.gpus:
            there = ", ".join(map(str, facts.gpus))
            yield f"{at}.gpus", f"there is no GPU {gpu} that can be used here; there are: {there}"


def _profiles(
    config: config_pb.ModelConfig, group: Group, facts: LoadFacts, at: str
) -> Iterator[tuple[str, str]]:
    if group.profile and config.platform != TENSORRT.name:
        yield f"{at}.profile", "only TensorRT plans have optimization profiles"
        return
    num_profiles = len(facts.profile_rows)
    for text in group.profile:
        index = profile_index(text)
        if index is None:
            yield f"{at}.profile", f'"{cited(text)}" is not the index of an optimization profile'
        elif num_profiles and index >= num_profiles:
            reason = f"there is no profile {index}; the plan has {num_profiles}, counted from 0"
            yield f"{at}.profile", reason
