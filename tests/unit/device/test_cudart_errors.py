"""What CUDA's error numbers are turned into."""

from __future__ import annotations

import pytest

from headrace.device.cudart_errors import ADVICE, NO_GPU, STICKY, device_error
from headrace.device.cudart_memory import pinning


def test_an_error_carries_cudas_name_number_and_what_was_done() -> None:
    """The text says what was being done, what CUDA says of it, and how to mend it."""
    error = device_error(46, "cudaErrorDevicesUnavailable", "all busy", "opening a stream on GPU 1")
    assert str(error) == (
        "opening a stream on GPU 1: all busy; another process holds the GPU alone: see nvidia-smi "
        "for its compute mode (cudaErrorDevicesUnavailable 46)"
    )
    assert (error.code, error.name, error.sticky) == (46, "cudaErrorDevicesUnavailable", False)


@pytest.mark.parametrize("code", [700, 702, 716, 719])
def test_a_dead_context_asks_for_a_restart(code: int) -> None:
    """Errors after which nothing works are sticky, and say that only a restart helps."""
    error = device_error(code, "cudaError", "gone", "asking whether work is done")
    assert error.sticky
    assert "restart the process" in str(error)


@pytest.mark.parametrize("code", [1, 2, 98, 101, 400, 600, 900])
def test_a_refused_call_is_not_sticky(code: int) -> None:
    """Wrong arguments, no memory, not ready and a broken capture leave the context sound."""
    assert not device_error(code, "cudaError", "no", "copying").sticky


def test_no_error_has_two_advices() -> None:
    """Sticky errors have their own; and every way of having no GPU says what to do."""
    assert not STICKY.keys() & ADVICE.keys()
    assert NO_GPU.keys() <= ADVICE.keys()


def test_pinning_names_its_limits() -> None:
    """The text of a failed pinned allocation shows this process's real limits."""
    text = pinning(12345)
    assert "12345 bytes" in text
    assert "RLIMIT_MEMLOCK, here " in text
    assert "NUMA nodes, here " in text
    assert "--pinned-memory-pool-byte-size" in text
