"""CUDA shared memory by the clients of others, on a real GPU: tritonclient and perf_analyzer.

Each is a process of its own. `perf_analyzer` is looked for on the PATH.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.server import Server

pytestmark = pytest.mark.gpu

STATUSES = {
    "twice": ("ALREADY_EXISTS", "'in' is registered already"),
    "longer": ("INVALID_ARGUMENT", "which has 2097152"),
    "elsewhere": ("INVALID_ARGUMENT", "99"),
    "no handle": ("INVALID_ARGUMENT", ""),
    "other kind": ("NOT_FOUND", ""),
    "unknown": ("NOT_FOUND", "'nothing' is not registered"),
    "behind the end": ("INVALID_ARGUMENT", "do not lie within shared memory region 'in'"),
    "too small": ("INVALID_ARGUMENT", "600000 bytes does not fit into the 599999 bytes"),
}


def test_tritonclient(shm_server: Server) -> None:
    """Every kind of call, parts at odd places, tensors of torch's, each error by its status."""
    for package in ("tritonclient.utils.cuda_shared_memory", "torch"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from helpers.environments import CLIENTS, run

    command: list[str | Path] = [
        sys.executable,
        CLIENTS / "tritonclient_cuda_shm.py",
        shm_server.address,
    ]
    seen = json.loads(run(command, timeout_s=60, env=os.environ))
    assert "cuda_shared_memory" in seen.pop("extensions")
    found = {
        what: status.removeprefix("StatusCode.") for what, (status, _) in seen["errors"].items()
    }
    assert found == {what: status for what, (status, _) in STATUSES.items()}
    for what, (_, text) in seen.pop("errors").items():
        assert STATUSES[what][1] in text
    regions = seen.pop("regions")
    assert {name: region["byte_size"] for name, region in regions.items()} == {
        "in": "2097152",
        "out": "2097152",
    }
    assert seen == {
        "both ways": {"equal": True, "raw": [0], "shape": [1, 600_000], "region": "out"},
        "at offsets": True,
        "one way": [True, True],
        "streamed": [True, True],
        "asyncio": True,
        "dlpack": True,
        "left": ["out"],
        "at last": [],
    }


def test_the_examples_of_the_docs(shm_server: Server) -> None:
    """One after the other, as they stand."""
    pytest.importorskip("tritonclient.utils.cuda_shared_memory")
    from helpers.documented import examples, run_examples

    run_examples(examples("docs/shared-memory.md"), shm_server.address)


@pytest.mark.parametrize("kind", ["cuda", "system"])
@pytest.mark.parametrize("more", [(), ("--streaming", "--async")], ids=["unary", "streaming"])
def test_perf_analyzer(shm_server: Server, kind: str, more: tuple[str, ...]) -> None:
    """Exit code 0 with both ways in shared memory; nothing is left of it."""
    binary = shutil.which("perf_analyzer")
    if binary is None:
        pytest.skip("perf_analyzer is not on the PATH")
    from helpers.environments import run

    before = shm_server.metrics()
    quick = ("-p", "400", "-r", "10", "-s", "900", "--concurrency-range", "2")
    command = [binary, "-m", "identity_6mb", "-i", "grpc", "-u", shm_server.address, *quick]
    printed = run([*command, "--shared-memory", kind, *more], timeout_s=90, env=os.environ)
    after = shm_server.metrics()
    assert re.search(r"Inference count: [1-9]\d*", printed)
    assert "unable" not in printed.lower()
    assert after["headrace_regions"] == 0
    counted = {
        way: after[name] - before[name]
        for way in ("read", "written", "direct")
        for name in (f"headrace_region_{way}_bytes_total",)
    }
    assert counted.pop("direct") > 0
    assert counted == {"read": 0, "written": 0}
