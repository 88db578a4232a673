"""Which of a model's version folders are served: pure, as Triton's `version_policy` says."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from headrace_proto.v1 import model_config_pb2 as config_pb

LARGEST_VERSION = 2**63 - 1  # int64 in the protocol


class Choice(NamedTuple):
    """The outcome of a policy."""

    served: tuple[int, ...]  # ascending
    missing: tuple[int, ...]  # asked for by number, but not there; ascending


def parse_version(name: str) -> int | None:
    """Return the version that a folder's name stands for, None when it stands for none.

    A version is a positive integer in plain digits without leading zeros.
    """
    if not (name.isascii() and name.isdigit()) or name.startswith("0"):
        return None
    # Length first: a name can hold more digits than int() takes.
    if len(name) > len(str(LARGEST_VERSION)):
        return None
    version = int(name)
    return version if version <= LARGEST_VERSION else None


def choose_versions(policy: config_pb.ModelVersionPolicy, available: Collection[int]) -> Choice:
    """Choose the versions to serve; without a policy the newest one.

    Args:
        policy: `latest` without `num_versions` means one.
        available: The versions that are there.
    """
    newest_last = sorted(set(available))
    match policy.WhichOneof("policy_choice"):
        case "all":
            return Choice(tuple(newest_last), ())
        case "specific":
            wanted = sorted(set(policy.specific.versions))
            served = tuple(version for version in wanted if version in available)
            missing = tuple(version for version in wanted if version not in available)
            return Choice(served, missing)
        case _:
            num_versions = policy.latest.num_versions or 1
            return Choice(tuple(newest_last[-num_versions:]), ())
