"""The rule that says what limits a rung."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ladder.limits import FULL, Shares, limit_of

shares = st.floats(0, 1)


@pytest.mark.parametrize(
    ("busy", "text"),
    [
        (Shares(host=0.1, copy=0.2, compute=0.97), "compute 97%"),
        (Shares(host=0.1, copy=0.99, compute=0.97), "copy 99%"),
        (Shares(host=0.9, copy=0.99, compute=1.0), "host 90%"),
        (Shares(host=0.2, copy=0.1, compute=0.6), "order (compute) 60%"),
        (Shares(host=0.5, copy=0.1, compute=0.4), "order (host) 50%"),
    ],
)
def test_limits(busy: Shares, text: str) -> None:
    """A full host comes first, then the fuller of copy and compute; else the order is the limit."""
    assert limit_of(busy).text == text


@given(shares, shares, shares)
def test_the_limit_is_one_of_the_shares(host: float, copy: float, compute: float) -> None:
    """Its share is that of the resource it names, and it is full when it says so."""
    busy = Shares(host, copy, compute)
    limit = limit_of(busy)
    assert limit.share == getattr(busy, limit.resource)
    assert limit.is_full == (limit.share >= FULL)
    assert limit.is_full == (max(host, copy, compute) >= FULL)
