"""Reads arrivals that were written down: a number or two in each line of a text, or of a .npy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace_client.bench.schedule import Replay
from headrace_client.bench.usage import UsageError

_MAX_COLUMNS = 2
_Columns = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def read_replay(path: Path, num_sources: int) -> Replay:
    """Read when requests are due, and from which source; without a second column in turn.

    Raises:
        UsageError: The file is no such list.
    """
    columns = _numbers(path)
    times_s = columns[:, 0]
    if times_s[0] < 0 or (np.diff(times_s) < 0).any():
        raise UsageError(f"--replay {path}: times must begin at 0 or later, and never fall")
    if columns.shape[1] == 1:
        return Replay(times_s, (np.arange(len(times_s)) % num_sources).astype(np.int32))
    sources = columns[:, 1]
    if (sources != np.floor(sources)).any() or sources.min() < 0 or sources.max() >= num_sources:
        raise UsageError(f"--replay {path}: sources must be 0 to {num_sources - 1}, see --sources")
    return Replay(times_s, sources.astype(np.int32))


def read_intervals(path: Path, num_sources: int) -> Replay:
    """Read pauses between requests in microseconds, which come again for ever.

    Raises:
        UsageError: The file is no such list.
    """
    pauses_s = _numbers(path)[:, 0] / 1e6
    if (pauses_s < 0).any() or not pauses_s.sum() > 0:
        raise UsageError(f"--request-intervals {path}: pauses must be 0 or more, and not all 0")
    times_s = np.cumsum(pauses_s)
    sources = (np.arange(len(times_s)) % num_sources).astype(np.int32)
    return Replay(times_s, sources, period_s=float(times_s[-1]))


def _numbers(path: Path) -> _Columns:
    try:
        columns = _array(path) if path.suffix == ".npy" else _text(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    if columns.dtype.kind not in "biuf":
        raise UsageError(f"{path}: expected numbers, and {columns.dtype} came")
    columns = columns[:, np.newaxis] if columns.ndim == 1 else columns
    is_list = columns.ndim == 2 and columns.size and columns.shape[1] <= _MAX_COLUMNS
    if not is_list or not np.isfinite(columns).all():
        raise UsageError(f"{path}: expected at least one line, with one or two numbers in each")
    return columns.astype(np.float64)


def _array(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        try:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except Exception as error:  # a header goes through Python's own tokenizer
            raise ValueError(f"is no array that numpy can read ({error})") from error
        return array


def _text(path: Path) -> NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about empty files, which are refused all the same
        return np.loadtxt(path, ndmin=2)
