"""The real lean runtime of TensorRT on a GPU: it is made, it is asked, and what it refuses is told.

It runs plans that the full builder made version compatible. None is at hand here, so what loads is
not proven; everything up to the runtime's own answer is.
"""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.engines.plan import read_plan_header
from headrace.engines.trt import open_engine
from headrace.engines.trt_load import load_plan
from headrace.engines.trt_modules import Backend, open_backend
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.device.base import Device
    from helpers.device_rig import Rig

pytestmark = pytest.mark.gpu

LEAN = ("tensorrt_lean", "tensorrt_lean_bindings")


@pytest.fixture
def lean(rig: Rig) -> Backend:
    """The lean runtime; the device was opened before it, as it demands."""
    if not any(map(find_spec, LEAN)):
        pytest.skip(f"the lean runtime is not installed: {' or '.join(LEAN)}")
    if any(map(find_spec, ("tensorrt", "tensorrt_bindings"))):
        pytest.skip("the full TensorRT is installed, and is taken before the lean one")
    return open_backend("standard")


@pytest.fixture
def device(rig: Rig) -> Device:
    return rig.device


def standard_plan(lean: Backend, *, version: str = "", body: bytes = bytes(4096)) -> bytes:
    """A plan file with a good header and whatever behind it."""
    numbers = tuple(map(int, (version or lean.can.version).split(".")[:4]))
    head = b"ftrt" + struct.pack("<I", 0) + bytes(8) + struct.pack("<Q", 32 + len(body))
    return head + bytes(numbers) + bytes(4) + body


def refusal(path: Path, content: bytes, device: Device) -> str:
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        open_engine(path, device)
    return str(caught.value)


def test_the_lean_runtime_is_what_serves_standard_plans(lean: Backend) -> None:
    """With nothing else installed it is chosen; it has neither plugins nor RTX's extras."""
    assert lean.can.name in LEAN
    assert not lean.can.has_plugins
    assert not lean.can.has_validity
    assert not lean.can.has_specialization
    assert lean.can.has_engine_stat
    assert lean.can.has_aliases


def test_a_runtime_is_made_with_our_logger_and_recorder(lean: Backend, rig: Rig) -> None:
    """The rest of what a load sets on a runtime works, too, and the GPU is as alive as before."""
    from headrace.engines.trt_logging import ErrorTexts, make_logger, make_recorder

    errors = ErrorTexts()
    runtime = lean.trt.Runtime(make_logger(lean.trt, "test", errors))
    runtime.error_recorder = make_recorder(lean.trt, errors)
    runtime.engine_host_code_allowed = True
    assert runtime.deserialize_cuda_engine(b"no plan at all, but long enough to look into") is None
    assert not errors.is_empty
    rig.device.check()


@pytest.mark.parametrize("body", [bytes(4096), b"\xff" * 4096, b""], ids=["zeros", "ones", "none"])
def test_a_plan_of_garbage_is_refused_in_the_runtimes_words(
    lean: Backend, device: Device, tmp_path: Path, body: bytes
) -> None:
    """One line: what the runtime says, what the plan says it is, and what is here."""
    path = tmp_path / "model.plan"
    text = refusal(path, standard_plan(lean, body=body), device)
    assert text.startswith(f"{path}: {lean.can.name} refuses it (")
    assert "without giving a reason" not in text
    assert f"built by TensorRT {lean.can.version}" in text
    assert f"here is {lean.can.name} {lean.can.version} on GPU 0 (" in text
    assert "compute capability" in text
    assert "\n" not in text
    device.check()


def test_a_plan_of_another_release_is_told_by_both_versions(
    lean: Backend, device: Device, tmp_path: Path
) -> None:
    """The text has the release that built it, the one that is here, and what to do."""
    content = standard_plan(lean, version="9.2.0.5")
    text = refusal(tmp_path / "model.plan", content, device)
    assert "built by TensorRT 9.2.0.5" in text
    assert "the releases differ" in text
    assert "--version-compatible" in text


def test_a_plan_of_rtx_under_the_standard_magic_is_refused(
    lean: Backend, device: Device, tmp_path: Path
) -> None:
    """The runtime tells the two products apart behind the magic, too."""
    head = "66747274000000000200000000000000341900000000000001070174767472747e"
    content = bytes.fromhex(head).ljust(0x1934, b"\0")
    assert "refuses it (" in refusal(tmp_path / "model.plan", content, device)


def test_a_cut_header_never_reaches_the_runtime(device: Device, tmp_path: Path) -> None:
    """Twenty-seven bytes are no plan, whoever would be asked."""
    text = refusal(tmp_path / "model.plan", b"ftrt" + bytes(23), device)
    assert "is truncated: 27 bytes" in text


def test_failing_loads_from_many_threads_end_and_leave_no_memory(
    lean: Backend, device: Device, tmp_path: Path
) -> None:
    """Each load fails with its own text; the GPU's free memory is the same after them all."""
    from cuda.bindings import runtime as cuda

    path = tmp_path / "model.plan"
    path.write_bytes(standard_plan(lean))
    header = read_plan_header(path)

    def load(_number: int) -> str:
        try:
            load_plan(lean, header, device, allow_host_code=False)
        except ConfigError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(4) as threads:
        first = set(threads.map(load, range(8)))  # what is kept for good is taken now
        _, before, _ = cuda.cudaMemGetInfo()
        texts = set(threads.map(load, range(64)))
        _, after, _ = cuda.cudaMemGetInfo()
    assert len(first | texts) == 1
    assert "refuses it (" in texts.pop()
    assert after >= before
    device.check()
