"""The limit on open files is raised to what connections need, within what the system allows."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

import pytest

from headrace.descriptors import make_room

Set = Callable[[int], None]


@pytest.fixture
def limits() -> Iterator[Set]:
    """Sets the soft limit of this process; the former comes back."""
    real = resource.getrlimit(resource.RLIMIT_NOFILE)
    if real[1] < 8192:
        pytest.skip("this process may not open 8192 files")

    def set_soft(soft: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, real[1]))

    yield set_soft
    resource.setrlimit(resource.RLIMIT_NOFILE, real)


def soft_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_low_limit_is_raised(limits: Set) -> None:
    """As far as is needed, no further."""
    limits(1024)
    make_room(4096)
    assert soft_limit() == 4096 + 512


def test_a_high_limit_stays(limits: Set) -> None:
    """It is the operator's."""
    limits(8192)
    make_room(4096)
    assert soft_limit() == 8192


def test_what_is_not_allowed_is_told(limits: Set, caplog: pytest.LogCaptureFixture) -> None:
    """With both ways out."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits(1024)
    make_room(hard + 1)
    assert soft_limit() == hard
    assert "--grpc-max-connections" in caplog.text
    assert str(hard) in caplog.text
