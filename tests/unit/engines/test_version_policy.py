"""Version folders and policies, against rules written out the long way."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.version_policy import LARGEST_VERSION, choose_versions, parse_version
from headrace_proto.v1 import model_config_pb2 as config_pb

VERSIONS = st.sets(st.integers(1, 12), max_size=8)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("1", 1),
        ("20240131", 20240131),
        (str(LARGEST_VERSION), LARGEST_VERSION),
        (str(LARGEST_VERSION + 1), None),
        ("9" * 5000, None),
        ("0", None),
        ("01", None),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        ("1_0", None),
        (" 1", None),
        ("1a", None),
        ("", None),
        ("²", None),
        ("١", None),  # a digit, but not one of ours
    ],
)
def test_a_version_is_a_plain_positive_integer(name: str, version: int | None) -> None:
    """Only digits without leading zeros, within int64, are a version."""
    assert parse_version(name) == version


@given(st.text(max_size=22) | st.from_regex(r"[0-9]{1,22}", fullmatch=True))
def test_parsing_follows_the_rule_for_any_name(name: str) -> None:
    """The rule as a regular expression gives the same answer."""
    is_version = re.fullmatch(r"[1-9][0-9]*", name) and int(name) < 2**63
    assert parse_version(name) == (int(name) if is_version else None)


def test_without_a_policy_the_newest_is_served() -> None:
    """By number, not by text."""
    assert choose_versions(config_pb.ModelVersionPolicy(), {9, 10, 2}) == ((10,), ())


@given(VERSIONS, st.integers(0, 10))
def test_latest_serves_the_highest_numbers(available: set[int], num_versions: int) -> None:
    """A version is served when fewer than `num_versions` are higher; zero counts as one."""
    policy = config_pb.ModelVersionPolicy()
    policy.latest.num_versions = num_versions
    wanted = max(num_versions, 1)
    expected = [
        v for v in range(1, 13) if v in available and sum(w > v for w in available) < wanted
    ]
    assert choose_versions(policy, available) == (tuple(expected), ())


@given(VERSIONS)
def test_all_serves_all(available: set[int]) -> None:
    """In ascending order."""
    policy = config_pb.ModelVersionPolicy()
    policy.all.SetInParent()
    assert choose_versions(policy, available) == (tuple(sorted(available)), ())


@given(VERSIONS, st.lists(st.integers(-1, 14), max_size=6))
def test_specific_serves_what_is_there_and_names_what_is_not(
    available: set[int], versions: list[int]
) -> None:
    """Every version asked for is either served or missing, once."""
    policy = config_pb.ModelVersionPolicy()
    policy.specific.versions.extend(versions)
    policy.specific.SetInParent()
    served, missing = choose_versions(policy, available)
    assert list(served) == [v for v in range(-1, 15) if v in versions and v in available]
    assert list(missing) == [v for v in range(-1, 15) if v in versions and v not in available]
