"""Servers for the tests that go over a socket: one a transport, on the load models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import onnx_models
from helpers.rpc_client import RpcClient
from helpers.server import TRANSPORTS, Server, ServerPool
from load.models import SMALL, write_repository


@pytest.fixture(scope="session")
def load_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the small load models."""
    return write_repository(tmp_path_factory.mktemp("load-models"), SMALL)


@pytest.fixture(scope="session")
def servers() -> Iterator[ServerPool]:
    """Servers by their arguments, each started once."""
    with ServerPool() as pool:
        yield pool


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport in turn."""
    return str(request.param)


@pytest.fixture
def server(transport: str, servers: ServerPool, load_repository: Path) -> Server:
    """A server with limits low enough to be reached: 8 MiB a message."""
    limits = ("--grpc-max-request-bytes", str(8 << 20))
    return servers.get("--model-repository", load_repository, "--transport", transport, *limits)


@pytest.fixture(scope="session")
def small_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the small models, each with something of its own."""
    return onnx_models.write_repository(tmp_path_factory.mktemp("small-models"))


@pytest.fixture
def small(transport: str, servers: ServerPool, small_repository: Path) -> Server:
    """A server with the small models and a queue of two."""
    queue = ("--max-queue-size", "2")
    return servers.get("--model-repository", small_repository, "--transport", transport, *queue)


@pytest.fixture
def client(small: Server) -> Iterator[RpcClient]:
    """A client of that server."""
    with RpcClient(small.address) as client:
        yield client
