"""Our client in one process with the two others, whatever the order of the imports."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from helpers.environments import KSERVE, TRITONCLIENT, ClientRun, python_environment
from helpers.server import Server, ServerPool

OURS, TRITON, THEIRS = "headrace_client", "tritonclient.grpc", "kserve"
PAIRS = [*permutations((OURS, TRITON)), *permutations((OURS, THEIRS))]
ALL = [*permutations((OURS, TRITON, THEIRS))]


@pytest.fixture
def server(servers: ServerPool, repository: Path) -> Server:
    """One of either transport: what clash are the clients."""
    return servers.get("--model-repository", repository, "--transport", "grpcio")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("order", [*PAIRS, *ALL], ids=" ".join)
def test_import_order(client: ClientRun, order: tuple[str, ...]) -> None:
    """Ours never minds, nor is minded; the two others clash with each other in any case."""
    interpreter = python_environment(
        "side-by-side",
        *("--editable=./proto", "--editable=./client", *TRITONCLIENT["2.73.0"], KSERVE),
    )
    came = client(interpreter, "side_by_side.py", *order)
    first, *later = (name for name in order if name != OURS)
    assert came[OURS] == "answered"
    assert came[first] == "answered"
    for name in later:
        assert "duplicate symbol 'inference." in came[name]
