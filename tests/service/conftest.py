"""Servers for the tests that go over a socket: one a transport, on the load models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import onnx_models
from helpers.rpc_client import RpcClient
from helpers.server import TRANSPORTS, Server, ServerPool
from load.models import DTYPES, SMALL, write_repository


@pytest.fixture(scope="session")
def load_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the small load models."""
    return write_repository(tmp_path_factory.mktemp("load-models"), SMALL)


@pytest.fixture(scope="session")
def quick_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models that are loaded in a moment, for tests of what is in front of them."""
    return write_repository(tmp_path_factory.mktemp("quick"), ["pair", "identity_uint8"])


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
    """A repository of small models, each with something of its own, and all identities."""
    folder = tmp_path_factory.mktemp("small-models")
    write_repository(folder, [f"identity_{datatype.lower()}" for datatype in DTYPES])
    return onnx_models.write_repository(folder)


@pytest.fixture
def small(transport: str, servers: ServerPool, small_repository: Path) -> Server:
    """A server with the small models."""
    return servers.get("--model-repository", small_repository, "--transport", transport)


@pytest.fixture
def client(small: Server) -> Iterator[RpcClient]:
    """A client of that server."""
    with RpcClient(small.address) as client:
        yield client


@pytest.fixture(scope="session")
def slow_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The slow model alone, in one slot."""
    folder = tmp_path_factory.mktemp("slow-model")
    onnx_models.save(onnx_models.slow(), folder / "slow/1/model.onnx")
    (folder / "slow/config.pbtxt").write_text(onnx_models.SLOW_CONFIG)
    return folder


@pytest.fixture
def slow(transport: str, servers: ServerPool, slow_repository: Path) -> Server:
    """A server with the slow model: two requests run, two may wait."""
    queue = ("--max-queue-size", "2")
    return servers.get("--model-repository", slow_repository, "--transport", transport, *queue)
