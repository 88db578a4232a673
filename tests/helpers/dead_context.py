"""Kill a CUDA context with an illegal address and print what the device then says, as JSON.

Run as a program, because the context of the process that runs it is lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

from headrace.device.cudart import CudartDevice
from headrace.errors import DeviceError
from helpers.cuda_checked import checked

# Stores to address 8, which is nobody's. The driver compiles it for the GPU at hand.
KERNEL = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry store_nowhere()
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    mov.u64 %rd1, 8;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
\0"""


def answer(call: Callable[[], object]) -> dict[str, object]:
    """Return how a call ended."""
    try:
        value = call()
    except DeviceError as error:
        return {"code": error.code, "name": error.name, "sticky": error.sticky, "text": str(error)}
    return {"value": repr(value)}


def main() -> None:
    """Launch the kernel, wait for its event to fail, then ask everything else."""
    device = CudartDevice.open(0)
    stream, event, other = device.open_stream(), device.open_event(), device.open_event()
    block, memory = device.alloc_host(64), device.alloc_device(64)
    said = {"check before": answer(device.check)}
    module = checked(driver.cuModuleLoadData(KERNEL))
    kernel = checked(driver.cuModuleGetFunction(module, b"store_nowhere"))
    raw = driver.CUstream(int(stream.handle))
    stream.launch(lambda: checked(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, raw, 0, 0)))
    stream.record(event)
    deadline = time.monotonic() + 15.0
    while answer(event.is_done) == {"value": "False"} and time.monotonic() < deadline:
        pass
    said["event"] = answer(event.is_done)
    said["check"] = answer(device.check)
    said["open_stream"] = answer(device.open_stream)
    said["alloc_device"] = answer(lambda: device.alloc_device(64))
    said["alloc_host"] = answer(lambda: device.alloc_host(64))
    said["copy"] = answer(lambda: stream.copy_h2d(memory.ptr, block.ptr, 64))
    said["record"] = answer(lambda: stream.record(other))
    opened: tuple[Any, ...] = (memory, block, other, event, stream, device)
    for index, thing in enumerate(opened):
        said[f"close {index} {type(thing).__name__}"] = answer(thing.close)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
