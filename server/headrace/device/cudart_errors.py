"""What CUDA's error numbers mean for a server, and what its operator can do about them."""

from __future__ import annotations

from typing import Any

from headrace.errors import DeviceError

NO_GPU = {
    35: "no NVIDIA driver was found, or it is older than cuda-bindings needs",
    100: "the NVIDIA driver shows no GPU",
}
"""The answers of cudaGetDeviceCount that mean "no GPU here", and not "a GPU that is broken"."""

_RESTART = "the CUDA context is dead: restart the process"
_KERNEL = f"a kernel or a plugin went wrong, of any stream; {_RESTART}"
_HARDWARE = f"{_RESTART}, and look for Xid lines in the kernel's log: the hardware may be at fault"

STICKY = {
    214: _HARDWARE,  # ECCUncorrectable
    220: _HARDWARE,  # NvlinkUncorrectable
    226: _HARDWARE,  # Contained
    700: _KERNEL,  # IllegalAddress
    702: f"a kernel ran into the time limit of a display's GPU; {_RESTART}",  # LaunchTimeout
    709: _RESTART,  # ContextIsDestroyed
    710: _KERNEL,  # Assert
    714: _KERNEL,  # HardwareStackError
    715: _KERNEL,  # IllegalInstruction
    716: _KERNEL,  # MisalignedAddress
    717: _KERNEL,  # InvalidAddressSpace
    718: _KERNEL,  # InvalidPc
    719: _KERNEL,  # LaunchFailure
    721: _KERNEL,  # TensorMemoryLeak
    810: f"the MPS server ended this client; {_RESTART}",  # MpsClientTerminated
    911: f"a device outside of CUDA signalled an error; {_RESTART}",  # ExternalDevice
}
"""Errors after which every call of the process fails: those that CUDA's reference says so of, and
those of hardware and of a context that is gone."""

ADVICE = {
    3: "see whether nvidia-smi works; in a container, whether it was started with the GPU",
    35: "install or update the NVIDIA driver (see nvidia-smi), or choose the device host",
    46: "another process holds the GPU alone: see nvidia-smi for its compute mode",
    100: "start a container with --gpus all; see CUDA_VISIBLE_DEVICES; or choose the device host",
    101: "see CUDA_VISIBLE_DEVICES for what the process is shown",
    400: "bind_thread() of the stream's own device must have been called in this thread",
    802: "start the fabric manager (nvidia-fabricmanager), and wait until it is ready",
    803: "the driver's library and kernel module differ in version: reboot, or reload the module",
    804: "this GPU has no forward compatibility: take that package out of the library path",
    805: "the MPS control daemon cannot be reached: see CUDA_MPS_PIPE_DIRECTORY",
}


def device_error(code: int, name: str, text: str, doing: str) -> DeviceError:
    """Return the error for one answer of CUDA.

    Args:
        code: CUDA's number.
        name: CUDA's name for it.
        text: CUDA's sentence about it.
        doing: What was being done, such as "opening a stream on GPU 0".
    """
    advice = STICKY.get(code) or ADVICE.get(code)
    reason = f"{doing}: {text}" + (f"; {advice}" if advice else "")
    return DeviceError(reason, code=code, name=name, sticky=code in STICKY)


def status_error(rt: Any, status: Any, doing: str) -> DeviceError:
    """Return the error for a status; the binding comes as an argument, as one file imports it."""
    rt.cudaGetLastError()  # else a later call of this thread would report it once more
    name = rt.cudaGetErrorName(status)[1].decode()
    text = rt.cudaGetErrorString(status)[1].decode()
    return device_error(int(status), name, text, doing)


def count_gpus(rt: Any) -> tuple[int, DeviceError | None]:
    """Return how many GPUs there are, and the error that says why when there are none.

    It makes the first CUDA call of the process: without a driver this one answers, others crash.

    Raises:
        DeviceError: There is a GPU or a driver, but it does not work.
    """
    try:
        status, num_devices = rt.cudaGetDeviceCount()
    except RuntimeError as error:  # cuda-bindings 12.8 has no answer when there is no driver
        return 0, device_error(35, "no driver", str(error), "looking for a GPU")
    if status is rt.cudaError_t.cudaSuccess and num_devices:
        return num_devices, None
    if status is rt.cudaError_t.cudaSuccess:
        status = rt.cudaError_t.cudaErrorNoDevice
    why_none = status_error(rt, status, "looking for a GPU")
    if why_none.code not in NO_GPU:
        raise why_none
    return 0, why_none
