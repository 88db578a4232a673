"""The examples of docs/, run as they stand against a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from helpers.documented import examples, run_examples
from helpers.server import serving
from load.models import write_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from helpers.server import Server


@pytest.fixture
def server(transport: str, tmp_path: Path) -> Iterator[Server]:
    """A server whose clients may share memory."""
    repository = write_repository(tmp_path, ["identity_6mb"])
    arguments = ("--model-repository", repository, "--transport", transport, "--allow-client-shm")
    with serving(*arguments) as running:
        yield running


def test_system_shared_memory(server: Server) -> None:
    """The second example wants a GPU: `tests/gpu/test_cuda_shared_memory_clients.py` runs both."""
    host, _ = examples("docs/shared-memory.md")
    run_examples([host], server.address)
    assert server.metrics()["headrace_region_read_bytes_total"] == 3 * 1080 * 1920
