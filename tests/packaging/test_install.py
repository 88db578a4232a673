"""The wheels in environments of their own: what a user gets who never sees this repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from helpers.server import serving
from helpers.tree import REPOSITORY, modules
from helpers.wheels import Environment, oldest, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(240)
DIGITS = REPOSITORY / "deploy" / "models" / "digits" / "1" / "model.onnx"
OLDEST_ENGINE = "onnxruntime==1.20.0"

ASK = """
import numpy as np
from headrace_client import Client
with Client(ADDRESS) as client:
    outputs = client.infer("model", {"input": np.zeros((2, 64), np.float32)})
print({name: array.shape for name, array in outputs.items()})
"""


def import_all(package: str) -> str:
    """Write a script that imports every module of a package and says where it is installed."""
    needs_a_gpu = ("__main__", "cudart", "trt_modules")
    names = [name for name in modules(package) if not name.endswith(needs_a_gpu)]
    return (
        "import importlib\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(importlib.import_module({package!r}).__file__)"
    )


@pytest.mark.parametrize(
    ("fixture", "package"),
    [
        ("client_only", "headrace_proto"),
        ("client_only", "headrace_client"),
        ("server_only", "headrace_proto"),
        ("server_only", "headrace"),
    ],
)
def test_every_module_imports(fixture: str, package: str, request: pytest.FixtureRequest) -> None:
    """Nothing that is imported is missing, without a warning, and it is the installed copy."""
    environment: Environment = request.getfixturevalue(fixture)
    assert str(environment.folder) in environment.python(import_all(package))


def test_the_client_brings_no_more_than_it_says(client_only: Environment) -> None:
    """Installing the client does not bring the server, an engine or a metrics library."""
    ours = {"headrace-client", "headrace-proto"}
    assert set(client_only.distributions) - ours == {
        "grpcio",
        "numpy",
        "protobuf",
        "typing-extensions",  # grpcio's own
    }


def test_the_server_comes_without_the_client(server_only: Environment) -> None:
    """A production server installs neither the client nor a test library."""
    assert "headrace-client" not in server_only.distributions
    assert not {"pytest", "onnx", "tritonclient"} & set(server_only.distributions)


def test_commands_of_the_server(server_only: Environment) -> None:
    """`headrace` is on the path, says its version, and explains itself."""
    assert "0.1.0" in run(server_only.bin / "headrace", "version")
    help_text = run(server_only.bin / "headrace", "--help")
    assert all(command in help_text for command in ("serve", "inspect", "check", "version"))


def test_commands_of_the_client(client_only: Environment) -> None:
    """`headrace-client` is on the path and explains itself."""
    help_text = run(client_only.bin / "headrace-client", "--help")
    assert all(command in help_text for command in ("infer", "health", "models", "metadata"))


def test_installed_server_answers_installed_client(
    client_only: Environment, server_only: Environment
) -> None:
    """The two environments, which share no file, understand each other."""
    with serving(DIGITS, headrace=server_only.bin / "headrace") as server:
        answer = client_only.python(f"ADDRESS = {server.address!r}\n{ASK}")
        load = ("-c", "2", "-n", "50", "--warm-up", "0", "--quiet", "-u", server.address)
        report = run(client_only.bin / "headrace-client", "bench", "model", *load)
    assert "'probabilities': (2, 10)" in answer
    assert "answered    50" in report
    assert "asyncio" in report, "the extra [bench], which brings uvloop, was not asked for"


def test_oldest_supported_libraries_still_work(wheels: dict[str, Path], tmp_path: Path) -> None:
    """The lower bounds are true: with every dependency of ours at its oldest, it serves."""
    environment = Environment(tmp_path / "venv")
    pins = [pin for wheel in wheels.values() for pin in oldest(wheel)]
    assert {"grpcio==1.66.2", "protobuf==5.27.2"} <= set(pins)
    own = [str(wheels[package]) for package in ("headrace_proto", "headrace_client")]
    server = f"{wheels['headrace']}[onnxruntime]"
    environment.install(*own, server, *pins, OLDEST_ENGINE, is_pinned=False)
    with serving(DIGITS, headrace=environment.bin / "headrace") as running:
        assert "(2, 10)" in environment.python(f"ADDRESS = {running.address!r}\n{ASK}")
