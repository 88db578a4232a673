"""The factory takes the device that was asked for, or says what is missing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from headrace.device import open_device
from headrace.errors import ConfigError, DeviceError


def has_gpu() -> bool:
    if importlib.util.find_spec("cuda") is None:
        return False
    from headrace.device.cudart import count_devices

    return count_devices()[0] > 0


@pytest.mark.parametrize("kind", ["host", "sim"])
def test_a_kind_is_opened_by_name(kind: str) -> None:
    """Host and sim need nothing that may be missing."""
    device = open_device(kind, 3)
    assert (device.kind, device.index) == (kind, 3)
    device.close()


def test_auto_is_the_gpu_or_else_the_host() -> None:
    """Auto never fails for want of a GPU."""
    device = open_device("auto")
    assert device.kind == ("cudart" if has_gpu() else "host")
    device.close()


def test_an_unknown_kind_names_the_known_ones() -> None:
    """A typing error is answered with the choices."""
    with pytest.raises(ConfigError, match="'gpu': expected auto, cudart, host or sim"):
        open_device("gpu")


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_a_gpu_that_was_asked_for_must_be_there() -> None:
    """Without a GPU the error says how to get one, or what to choose instead."""
    with pytest.raises(DeviceError, match="the device host"):
        open_device("cudart")


def test_nothing_of_cuda_is_imported_before_it_is_asked_for() -> None:
    """A server on the host device runs where cuda-bindings could not even be imported."""
    program = (
        "import sys; sys.modules['cuda'] = None\n"
        "from headrace.device import open_device\n"
        "print(open_device('auto').kind, open_device('host').kind, open_device('sim').kind)\n"
        "try: open_device('cudart')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=15
    )
    kinds, refusal = ended.stdout.splitlines()
    assert kinds == "host host sim"
    assert refusal.startswith("DeviceError device cudart needs cuda-bindings")
    assert "headrace-server[cuda]" in refusal
