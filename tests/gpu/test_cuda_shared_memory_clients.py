"""CUDA shared memory by the clients of others, on a real GPU: tritonclient and perf_analyzer.

Each is a process of its own. `perf_analyzer` is looked for on the PATH.
"""

from __future__ import annotations

import json
import os
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
    from helpers.refusals import assert_refused

    command: list[str | Path] = [
        sys.executable,
        CLIENTS / "tritonclient_cuda_shm.py",
        shm_server.address,
    ]
    seen = json.loads(run(command, timeout_s=60, env=os.environ))
    assert "cuda_shared_memory" in seen.pop("extensions")
    assert_refused(seen.pop("errors"), STATUSES)
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
    from helpers.analyzer import assert_takes_regions
    from helpers.cuda_shm_client import copied_bytes

    before = shm_server.metrics()
    assert_takes_regions((binary, os.environ), shm_server, "identity_6mb", kind, *more)
    copied = copied_bytes(before, shm_server.metrics())
    assert copied.pop("direct") > 0
    assert copied == {"read": 0, "written": 0}
