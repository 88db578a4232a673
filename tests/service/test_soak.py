"""Random load with cancels and deadlines: right answers, one end each, nothing left over."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from helpers.server import NO_DEBUG, serving
from load.soak import ALLOWED, CANCEL, DEADLINE, PLAIN, leftovers, soak

# `make test` has to end; `python -m load.soak` takes the whole minute.
SECONDS = float(os.environ.get("SOAK_SECONDS", "8"))


@pytest.mark.timeout(SECONDS + 120)
def test_soak(transport: str, load_repository: Path) -> None:
    """32 clients, random sizes, cancels and deadlines: no wrong answer, no leak, no hang."""
    arguments = ("--model-repository", load_repository, "--transport", transport)
    with serving(*arguments, env=NO_DEBUG) as server:
        tally = asyncio.run(soak(server.address, seconds=SECONDS))
        assert tally.faults == []
        assert leftovers(server) == {}
    # Each kind of client met each of its ends, or this was no soak.
    met = {what: {how for kind, how in tally.ends if kind == what} for what in ALLOWED}
    assert met == {what: ALLOWED[what] for what in (PLAIN, CANCEL, DEADLINE)}
    assert tally.total > 1_000
