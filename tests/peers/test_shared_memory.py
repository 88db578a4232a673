"""System shared memory by the clients of others: tritonclient of two generations, perf_analyzer."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers.analyzer import assert_takes_regions
from helpers.environments import TRITONCLIENT, ClientRun, perf_analyzer, python_environment
from helpers.refusals import assert_refused
from helpers.server import TRANSPORTS, Server, ServerPool

pytestmark = pytest.mark.timeout(300)  # the first run installs the environments

STATUSES = {
    "twice": ("ALREADY_EXISTS", "'in' is registered already"),
    "no such key": ("INVALID_ARGUMENT", "names no shared memory that this server may open"),
    "too long": ("RESOURCE_EXHAUSTED", "'n' has 1099511627776 bytes"),
    "unknown": ("NOT_FOUND", "'nothing' is not registered"),
    "behind the end": ("INVALID_ARGUMENT", "do not lie within shared memory region 'in'"),
    "too small": ("INVALID_ARGUMENT", "4096 bytes does not fit into the 4095 bytes"),
    "wrong size": ("INVALID_ARGUMENT", "input byte size mismatch for input 'x'"),
    "status": ("NOT_FOUND", "'nothing' is not registered"),
    "cuda": ("UNIMPLEMENTED", "system shared memory alone"),
}


@pytest.fixture(params=TRANSPORTS)
def server(request: pytest.FixtureRequest, servers: ServerPool, repository: Path) -> Server:
    transport = ("--transport", str(request.param))
    return servers.get("--model-repository", repository, "--allow-client-shm", *transport)


@pytest.mark.parametrize("version", TRITONCLIENT)
def test_tritonclient(client: ClientRun, version: str) -> None:
    """Regions at offsets, both ways or one, every kind of call, and each error by its status."""
    interpreter = python_environment(f"tritonclient-{version}", *TRITONCLIENT[version])
    seen = client(interpreter, "tritonclient_shm.py")
    assert "system_shared_memory" in seen["extensions"]
    assert seen["frame"] == {
        "equal": True,
        "before": "00" * 128,
        "raw": [0],
        "shape": [4, 256],
        "size": 4096,
        "region": "out",
    }
    assert (seen["one way"], seen["streamed"]) == ([True, True], [True, True])
    assert seen["texts"] == [["a", "longer"], ["", "b" * 50]]
    assert_regions(seen)
    assert_refused(seen["errors"], STATUSES)


def assert_regions(seen: dict[str, Any]) -> None:
    """What is registered is listed, and no key is ever sent back."""
    listed = seen["asyncio"]["regions"]
    assert {name: region["byte_size"] for name, region in listed.items()} == {
        "in": "8192",
        "out": "8000",
    }
    assert (seen["left"], seen["at last"], seen["cuda"]) == (["out"], [], {})
    key = seen.pop("key")
    assert key not in json.dumps(seen)


@pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("apt-get") is None,
    reason="the binary is for x86-64, and one of its libraries comes as a Debian package",
)
@pytest.mark.parametrize("more", [(), ("--streaming", "--async")], ids=["unary", "streaming"])
def test_perf_analyzer(server: Server, more: tuple[str, ...]) -> None:
    """Exit code 0 with both ways in shared memory; nothing is left of it."""
    assert_takes_regions(perf_analyzer(), server, "mlp", "system", *more)
    assert server.metrics()["headrace_region_written_bytes_total"] > 0
