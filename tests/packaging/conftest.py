"""The wheels, built once for all packaging tests, and the environments made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from helpers.wheels import Environment, build

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Import package → wheel."""
    return build(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def client_only(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What `pip install headrace-client` gives."""
    environment = Environment(tmp_path_factory.mktemp("client") / "venv")
    environment.install(str(wheels["headrace_proto"]), str(wheels["headrace_client"]))
    return environment


@pytest.fixture(scope="session")
def server_only(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What `pip install "headrace-server[onnxruntime,native]"` gives."""
    environment = Environment(tmp_path_factory.mktemp("server") / "venv")
    environment.install(str(wheels["headrace_proto"]), f"{wheels['headrace']}[onnxruntime,native]")
    return environment
