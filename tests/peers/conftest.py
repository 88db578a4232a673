"""One server a transport for all the clients of others, and the way to run a client's script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import onnx_models
from helpers.environments import CLIENTS, ClientRun, run
from helpers.server import TRANSPORTS, Server, ServerPool
from load.models import DTYPES, write_repository

MODELS = (*(f"identity_{name.lower()}" for name in DTYPES), "pair", "mlp")
CLIENT_S = 40.0  # importing some of these clients takes two seconds by itself


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_repository(tmp_path_factory.mktemp("models"), MODELS)
    onnx_models.save(onnx_models.carries(), folder / "carries/1/model.onnx")
    (folder / "carries/config.pbtxt").write_text(onnx_models.CARRIES_CONFIG)
    return folder


@pytest.fixture(scope="session")
def servers() -> Iterator[ServerPool]:
    with ServerPool() as pool:
        yield pool


@pytest.fixture(params=TRANSPORTS)
def server(request: pytest.FixtureRequest, servers: ServerPool, repository: Path) -> Server:
    return servers.get("--model-repository", repository, "--transport", str(request.param))


@pytest.fixture
def client(server: Server) -> ClientRun:
    """`client(interpreter, script, *arguments)`: what the script printed as JSON."""

    def call(interpreter: Path, script: str, *arguments: str, **env: str) -> Any:
        command: list[str | Path] = [interpreter, CLIENTS / script, server.address, *arguments]
        return json.loads(run(command, timeout_s=CLIENT_S, env=env))

    return call
