"""What only a real GPU can show: its errors, its priorities, its clock, the cost of its calls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from time import perf_counter
from typing import TYPE_CHECKING

import pytest

from headrace.device import open_device
from headrace.errors import DeviceError

if TYPE_CHECKING:
    from helpers.cudart_rig import CudartRig

pytestmark = pytest.mark.gpu


def test_auto_takes_the_gpu(rig: CudartRig) -> None:
    """Where CUDA counts a GPU, the device auto is that GPU."""
    device = open_device("auto")
    try:
        assert device.kind == "cudart"
    finally:
        device.close()


def test_a_gpu_that_is_not_there(rig: CudartRig) -> None:
    """A number too high is refused with the number of GPUs that are shown."""
    with pytest.raises(DeviceError, match="GPU 1000 of ") as caught:
        open_device("cudart", 1000)
    assert caught.value.name == "cudaErrorInvalidDevice"


def test_the_gpu_has_a_name_and_a_uuid(rig: CudartRig) -> None:
    """The driver's name, and the UUID in the form that nvidia-smi and Triton's labels have."""
    assert rig.gpu.name
    assert re.fullmatch(r"GPU(-[0-9a-f]+){5}", rig.gpu.uuid)


def test_cuda_itself_calls_an_unrecorded_event_done(rig: CudartRig) -> None:
    """The trap that is_done() guards against is real."""
    from cuda.bindings import runtime as rt

    event = rig.keep(rig.gpu.open_event())
    assert rt.cudaEventQuery(event.raw)[0] is rt.cudaError_t.cudaSuccess
    with pytest.raises(DeviceError, match="never recorded"):
        event.is_done()


def test_not_done_leaves_no_error_behind(rig: CudartRig) -> None:
    """The thread's last error is clean after an event was asked too early."""
    from cuda.bindings import runtime as rt

    stream, event = rig.stream(), rig.event()
    let_go = rig.hold(stream)
    stream.record(event)
    assert not event.is_done()
    assert rt.cudaGetLastError()[0] is rt.cudaError_t.cudaSuccess
    let_go()


def test_a_refused_call_is_not_sticky(rig: CudartRig) -> None:
    """A call with wrong arguments fails alone: the device passes its check and goes on."""
    from cuda.bindings import runtime as rt

    with pytest.raises(DeviceError, match="cudaErrorInvalidDevice 101") as caught:
        rig.gpu.call("taking a GPU that is not there", rt.cudaSetDevice, 1000)
    assert not caught.value.sticky
    assert rt.cudaGetLastError()[0] is rt.cudaError_t.cudaSuccess
    rig.device.check()


def test_no_memory_names_what_is_free(rig: CudartRig) -> None:
    """Out of memory says what was asked for and what there is, with CUDA's name for it."""
    total_bytes = rig.device.memory_info()[1]
    with pytest.raises(DeviceError, match=f"{total_bytes * 2} bytes of device memory") as caught:
        rig.device.alloc_device(total_bytes * 2)
    assert f"of {total_bytes} bytes are free" in str(caught.value)
    assert caught.value.name == "cudaErrorMemoryAllocation"
    with pytest.raises(DeviceError, match="RLIMIT_MEMLOCK"):
        rig.device.alloc_host(2**50)


def test_memory_comes_back(rig: CudartRig) -> None:
    """A closed buffer's memory is free again."""
    size_bytes = 1 << 30
    before_bytes = rig.device.memory_info()[0]
    memory = rig.memory(size_bytes)
    during_bytes = rig.device.memory_info()[0]
    memory.close()
    after_bytes = rig.device.memory_info()[0]
    assert before_bytes - during_bytes >= size_bytes
    assert after_bytes - during_bytes >= size_bytes


def test_streams_are_non_blocking_and_clamped(rig: CudartRig) -> None:
    """No default stream is waited for, and priorities are those of the GPU's own range."""
    from cuda.bindings import runtime as rt

    _, least, greatest = rt.cudaDeviceGetStreamPriorityRange()
    for asked, given in ((0, least), (-1000, greatest), (1000, least), (-1, -1)):
        stream = rig.keep(rig.gpu.open_stream(priority=asked))
        assert rt.cudaStreamGetFlags(stream.raw)[1] == rt.cudaStreamNonBlocking
        assert rt.cudaStreamGetPriority(stream.raw)[1] == given


def test_events_time_what_lies_between_them(rig: CudartRig) -> None:
    """The time between two events is no less than the time for which the stream was held."""
    stream = rig.stream()
    start, end = rig.event(is_timed=True), rig.event(is_timed=True)
    stream.record(start)
    let_go = rig.hold(stream)
    stream.record(end)
    rig.wait(start)
    began_s = perf_counter()
    asked = [end.is_done() for _ in range(2000)]
    held_s = perf_counter() - began_s
    let_go()
    rig.wait(end)
    assert not any(asked)
    assert held_s * 0.99 <= rig.device.elapsed_s(start, end) < held_s + 1.0


def test_a_dead_context_is_told_by_everything(rig: CudartRig) -> None:
    """After an illegal address every call says so, sticky, and closing still goes through."""
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run(
        [sys.executable, "-m", "helpers.dead_context"],
        capture_output=True,
        check=False,
        env=search,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said.pop("check before") == {"value": "None"}
    closed = {name: said.pop(name) for name in list(said) if name.startswith("close ")}
    assert list(closed.values()) == [{"value": "None"}] * 6
    for name, answer in said.items():
        assert answer["code"] == 700, name
        assert answer["name"] == "cudaErrorIllegalAddress", name
        assert answer["sticky"], name
        assert "restart the process" in answer["text"], name
