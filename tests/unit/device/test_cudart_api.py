"""The CUDA adapter fits the real binding: every name, argument and answer without a driver.

Skipped where cuda-bindings is not installed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace.device
from headrace.device.base import DevicePtr, HostPtr
from headrace.device.cudart_errors import NO_GPU, STICKY
from headrace.errors import DeviceError

if TYPE_CHECKING:
    from headrace.device.cudart import CudartDevice, CudartStream

rt: Any = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")

FOLDER = Path(headrace.device.__file__).parent
SOURCE = "".join(
    (FOLDER / name).read_text("utf-8")
    for name in (
        "cudart.py",
        "cudart_errors.py",
        "cudart_graph.py",
        "cudart_memory.py",
        "cudart_shared.py",
    )
)


@pytest.fixture
def device() -> CudartDevice:
    """A device on a machine whose every CUDA call is answered with "no driver"."""
    from headrace.device.cudart import CudartDevice, count_devices

    num_devices, why_none = count_devices()
    if why_none is not None and why_none.name == "no driver":
        pytest.skip("this version of the binding raises where there is no driver")
    if why_none is None or why_none.code != 35:
        pytest.skip(f"{num_devices} GPUs, or a driver without one: see tests/gpu")
    return CudartDevice(0)


@pytest.fixture
def stream(device: CudartDevice) -> CudartStream:
    """A stream as one opened by a driver would be, but for its handle."""
    from headrace.device.cudart import CudartStream

    stream = CudartStream.__new__(CudartStream)
    vars(stream).update(raw=rt.cudaStream_t(8), name="stream", _device=device, _is_closed=False)
    return stream


def test_every_name_is_in_the_binding() -> None:
    """No function, enum member or constant is misspelt or gone."""
    names = set(re.findall(r"\brt\.(\w+(?:\.cuda\w+)?)", SOURCE))
    assert len(names) > 30
    for name in names:
        value = rt
        for part in name.split("."):
            assert hasattr(value, part), f"rt.{name} is not in {rt.__name__}"
            value = getattr(value, part)


def test_every_sticky_error_is_cudas() -> None:
    """The table holds each error whose reference says that the process must be relaunched."""
    relaunch = {
        int(member)
        for member in rt.cudaError_t
        if "terminated and relaunched" in " ".join((member.__doc__ or "").split())
    }
    if not relaunch:
        pytest.skip("this version of the binding has no texts")
    assert relaunch <= STICKY.keys()
    assert {rt.cudaError_t(code).name for code in STICKY.keys() - relaunch} == {
        "cudaErrorECCUncorrectable",
        "cudaErrorNvlinkUncorrectable",
        "cudaErrorContextIsDestroyed",
    }


def test_the_answers_for_no_gpu_are_cudas() -> None:
    """The numbers stand for what they are taken for."""
    assert {rt.cudaError_t(code).name for code in NO_GPU} == {
        "cudaErrorInsufficientDriver",
        "cudaErrorNoDevice",
    }


def test_statuses_are_compared_by_identity(device: CudartDevice) -> None:
    """The binding returns the enum's own members, in a tuple, and raises nothing."""
    status = rt.cudaEventQuery(rt.cudaEvent_t(8))
    assert isinstance(status, tuple)
    assert status[0] is rt.cudaError_t.cudaErrorInsufficientDriver


@pytest.mark.parametrize(
    "call",
    [
        lambda device: device.open_stream(),
        lambda device: device.open_event(),
        lambda device: device.alloc_host(10),
        lambda device: device.pin_host(4096, 4096),
        lambda device: device.open_shared(bytes(64)),
        lambda device: device.alloc_device(10),
        lambda device: device.memory_info(),
        lambda device: device.bind_thread(),
        lambda device: device.open(0),
    ],
)
def test_set_up_fails_with_the_drivers_answer(
    device: CudartDevice, call: Callable[[CudartDevice], object]
) -> None:
    """The arguments are what the binding takes, and its status becomes a DeviceError."""
    with pytest.raises(DeviceError, match="cudaErrorInsufficientDriver 35") as caught:
        call(device)
    assert not caught.value.sticky


@pytest.mark.parametrize(
    ("function", "args"),
    [
        ("cudaEventCreateWithFlags", ("cudaEventDisableTiming",)),
        ("cudaStreamCreateWithPriority", ("cudaStreamNonBlocking", -1)),
        ("cudaHostAlloc", (10, "cudaHostAllocPortable")),
        ("cudaHostRegister", (4096, 4096, "cudaHostRegisterPortable")),
        ("cudaMalloc", (10,)),
        ("cudaIpcOpenMemHandle", (rt.cudaIpcMemHandle_t(), "cudaIpcMemLazyEnablePeerAccess")),
        ("cudaIpcCloseMemHandle", (4096,)),
        ("cudaDeviceGetAttribute", (rt.cudaDeviceAttr.cudaDevAttrIpcEventSupport, 0)),
        ("cudaMemGetInfo", ()),
        ("cudaGetDeviceProperties", (0,)),
        ("cudaDeviceGetStreamPriorityRange", ()),
        ("cudaEventElapsedTime", (8, 16)),
        ("cudaStreamQuery", (8,)),
        ("cudaStreamEndCapture", (8,)),
        ("cudaGraphInstantiate", (8, 0)),
        ("cudaGraphGetNodes", (8,)),
        ("cudaGraphUpload", (8, 8)),
        ("cudaGraphLaunch", (8, 8)),
        ("cudaGraphExecDestroy", (8,)),
        ("cudaGraphDestroy", (8,)),
    ],
)
def test_set_up_calls_take_these_arguments(
    device: CudartDevice, function: str, args: tuple[object, ...]
) -> None:
    """Each call of set-up reaches the driver, past the binding's own checks of its arguments."""
    values = [getattr(rt, arg) if isinstance(arg, str) else arg for arg in args]
    assert int(getattr(rt, function)(*values)[0]) == 35


def test_the_hot_path_fails_with_the_drivers_answer(
    device: CudartDevice, stream: CudartStream
) -> None:
    """Copies, recordings and queries pass what the binding takes, and name what was being done."""
    from headrace.device.cudart import CudartEvent

    event = CudartEvent.__new__(CudartEvent)
    vars(event).update(raw=rt.cudaEvent_t(8), name="event", _device=device, is_closed=False)
    for call, doing in (
        (
            lambda: stream.copy_h2d(DevicePtr(512), HostPtr(1024), 4),
            "copying 4 bytes to the device",
        ),
        (lambda: stream.copy_d2h(HostPtr(512), DevicePtr(1024), 4), "copying 4 bytes from the"),
        (lambda: stream.copy_d2d(DevicePtr(512), DevicePtr(1024), 4), "copying 4 bytes within the"),
        (lambda: stream.clear(DevicePtr(512), 4), "clearing 4 bytes of the device"),
        (lambda: stream.record(event), "recording an event"),
        (event.is_done, "asking whether work is done"),
        (stream.synchronize, "making the GPU current"),
    ):
        with pytest.raises(DeviceError, match=f"{doing}.*cudaErrorInsufficientDriver 35"):
            call()
    stream.copy_h2d(DevicePtr(0), HostPtr(0), 0)
    stream.copy_d2d(DevicePtr(0), DevicePtr(0), 0)
    stream.clear(DevicePtr(0), 0)


def test_closing_goes_through_whatever_fails(
    device: CudartDevice, stream: CudartStream, caplog: pytest.LogCaptureFixture
) -> None:
    """A close on a dead driver logs and returns, and what is closed is not used again."""
    with caplog.at_level(logging.WARNING):
        stream.close()
        stream.close()
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        "draining a stream",
        "closing a stream",
    ]
    with pytest.raises(AssertionError, match="after its close"):
        stream.copy_h2d(DevicePtr(512), HostPtr(1024), 4)


def test_a_stream_that_fails_for_no_reason_of_its_own_is_the_devices_end(
    device: CudartDevice, stream: CudartStream
) -> None:
    """check() takes any failure of its idle stream for one of the whole device, and keeps it."""
    vars(device)["_probe"] = stream
    for _ in range(2):
        with pytest.raises(DeviceError, match="asking whether the GPU still works") as caught:
            device.check()
        assert caught.value.sticky
