"""The container, compose and Prometheus files agree with each other and with the programs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from headrace.config import ServerConfig
from helpers.tree import REPOSITORY
from helpers.wheels import Environment, run

pytestmark = pytest.mark.timeout(180)
DISCARD_PORT = 9  # no server listens there
DOCKERFILE = re.sub(r"\\\n\s*", "", (REPOSITORY / "Dockerfile").read_text("utf-8"))


def instruction(keyword: str) -> str:
    """Return what follows the last KEYWORD of the Dockerfile."""
    found: list[str] = re.findall(rf"^{keyword} (.*)$", DOCKERFILE, re.MULTILINE)
    return found[-1]


def compose() -> dict[str, Any]:
    """Return the services of the compose file."""
    services: dict[str, Any] = yaml.safe_load(
        (REPOSITORY / "deploy/compose.yaml").read_text("utf-8")
    )["services"]
    return services


def test_ports_are_the_ones_that_the_server_opens() -> None:
    """Dockerfile, compose and Prometheus name the default ports."""
    defaults = ServerConfig()
    ports = [defaults.grpc_port, defaults.metrics_port]
    assert instruction("EXPOSE").split() == [str(port) for port in ports]
    assert [int(text.rsplit(":", 1)[1]) for text in compose()["headrace"]["ports"]] == ports
    scrape = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    targets = [
        t for job in scrape["scrape_configs"] for s in job["static_configs"] for t in s["targets"]
    ]
    assert targets == [f"headrace:{defaults.metrics_port}"]


def test_the_image_starts_a_command_that_exists(server_only: Environment) -> None:
    """ENTRYPOINT and CMD are a valid command line of the installed server."""
    command = json.loads(instruction("ENTRYPOINT")) + json.loads(instruction("CMD"))
    assert command[:2] == ["headrace", "serve"]
    help_text = run(server_only.bin / command[0], command[1], "--help")
    assert all(option in help_text for option in command if option.startswith("--"))


def test_the_health_check_asks_the_port_that_the_server_was_given(
    client_only: Environment,
) -> None:
    """HEALTHCHECK is a command of the installed client; it follows HEADRACE_GRPC_PORT."""
    command = instruction("HEALTHCHECK").split("CMD ", 1)[1]
    assert f":-{ServerConfig().grpc_port}}}" in command
    asked = f"PATH={client_only.bin}:$PATH HEADRACE_GRPC_PORT={DISCARD_PORT}; {command}"
    with pytest.raises(AssertionError, match="ended with 1") as failed:
        run("sh", "-c", asked)
    assert "Traceback" not in str(failed.value)
    assert f"127.0.0.1:{DISCARD_PORT}" in str(failed.value).partition("\n")[2]


def test_the_server_is_not_root() -> None:
    """The user is a number, so that an orchestrator can see that it is not root."""
    uid, _, gid = instruction("USER").partition(":")
    assert int(uid) >= 1000
    assert int(gid) >= 1000


def test_the_drain_ends_before_the_engine_kills() -> None:
    """Compose waits longer than the server's own grace."""
    grace_s = int(compose()["headrace"]["stop_grace_period"].removesuffix("s"))
    assert grace_s > ServerConfig().exit_timeout_s


def test_the_builder_sees_what_it_copies_and_little_else() -> None:
    """.dockerignore is an allow-list of exactly the sources of COPY."""
    lines = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    copied = re.findall(r"^COPY (?!--from)(\S+)", DOCKERFILE, re.MULTILINE)
    assert rules[0] == "*"
    assert [rule[1:] for rule in rules if rule.startswith("!")] == copied


@pytest.mark.parametrize("engine", ["cpu", "tensorrt"])
def test_every_engine_of_the_image_names_extras_that_exist(engine: str) -> None:
    """The build argument leads to extras of the server's distribution."""
    extras = re.search(rf"\b{engine}\) extras=(\S+)", DOCKERFILE)
    assert extras
    metadata = (REPOSITORY / "server/pyproject.toml").read_text("utf-8")
    assert all(re.search(rf"^{name} = \[", metadata, re.MULTILINE) for name in extras[1].split(","))
