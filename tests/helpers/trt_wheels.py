"""TensorRT's Python bindings for tests: fetched as wheels, made importable without their libraries.

The bindings of every release are one small shared object that needs nine functions of libraries of
several gigabytes. Here those functions are marked weak in a copy of the object and the libraries
struck from its list of needs, so that it loads with them absent: every class, enum and signature is
real, and only what would call into the libraries is not there. No compiler is needed.

    python tests/helpers/trt_wheels.py     fetches all of them
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace-tests"

ABSENT_LIBRARIES = ("libnvinfer", "libnvonnxparser", "libnvparsers", "libtensorrt_")
ABSENT_FUNCTIONS = (
    *("_INTERNAL", "PluginRegistry", "initLibNvInferPlugins", "OnnxParserVersion"),
    *(
        "CaffeParserEv",
        "UffParserEv",
        "ProtobufLibraryEv",
        "FieldTypeEi",
    ),  # of the parsers that 8.6 still had
)

ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
SECTION, SYMBOL, DYNAMIC = (
    struct.Struct("<IIQQQQIIQQ"),
    struct.Struct("<IBBHQQ"),
    struct.Struct("<QQ"),
)
SHT_DYNAMIC, SHT_DYNSYM = 6, 11
STB_GLOBAL, STB_WEAK = 1, 2
DT_NEEDED, DT_IGNORED = 1, 0x6000000F  # a number that no loader knows, in the range for that


_refused: list[str] = []  # why the first wheel of this process could not be fetched


class WheelError(Exception):
    """The wheel cannot be had: no package index, or none for this Python and machine."""


@dataclass(frozen=True)
class Wheel:
    """A distribution, its version, and the module it installs."""

    distribution: str
    version: str
    module: str

    @property
    def label(self) -> str:
        """The name of a test."""
        return f"{self.module.removesuffix('_bindings')}-{self.version}"


BINDINGS = (
    Wheel("tensorrt-cu12-bindings", "10.1.0", "tensorrt_bindings"),  # the oldest we support
    Wheel("tensorrt-cu13-bindings", "10.16.1.11", "tensorrt_bindings"),
    Wheel("tensorrt-cu13-bindings", "11.0.0.114", "tensorrt_bindings"),
    Wheel("tensorrt-cu13-bindings", "11.4.0.106", "tensorrt_bindings"),
    Wheel("tensorrt-lean-cu13-bindings", "11.4.0.106", "tensorrt_lean_bindings"),
    Wheel("tensorrt-rtx-cu13-bindings", "1.7.1.116", "tensorrt_rtx_bindings"),
)

ANCESTORS = (
    Wheel("tensorrt-bindings", "8.6.1", "tensorrt_bindings"),
    Wheel("tensorrt-cu12-bindings", "10.0.1", "tensorrt_bindings"),
)
"""Too old to be served with; a migration starts there, and what is said of it is compared too."""

RTX = (
    Wheel("tensorrt-rtx-cu13-bindings", "1.7.1.116", "tensorrt_rtx_bindings"),
    Wheel("tensorrt-rtx-cu13-libs", "1.7.1.116", "tensorrt_rtx_libs"),
)
"""The whole RTX runtime, 96 MB: without a GPU it builds plans, and refuses to load them."""


def bindings(wheel: Wheel) -> Path:
    """Return a folder from which the bindings can be imported with their libraries absent.

    Raises:
        WheelError: The wheel is not in the cache and cannot be fetched.
    """
    return _once(f"{wheel.label}-alone", lambda folder: _unpack_alone(wheel, folder))


def rtx_runtime() -> Path:
    """Return a folder from which the complete RTX runtime can be imported."""
    return _once(f"{RTX[0].label}-complete", _unpack_rtx)


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the cached folder of that name, made now when it is not there."""
    target = CACHE / name
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            made = Path(temporary) / "made"
            make(made)
            try:
                made.rename(target)
            except OSError:  # another run was faster
                assert target.is_dir()
    return target


def _unpack_alone(wheel: Wheel, folder: Path) -> None:
    _unpack(wheel, folder)
    (shared_object,) = (folder / wheel.module).glob("*.so")
    shared_object.write_bytes(without_libraries(shared_object.read_bytes()))


def _unpack_rtx(folder: Path) -> None:
    for wheel in RTX:
        _unpack(wheel, folder)


def _unpack(wheel: Wheel, folder: Path) -> None:
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--retries", "2"]
    download += ["--disable-pip-version-check", "--only-binary", ":all:"]
    if _refused:
        raise WheelError(_refused[0])  # one refusal is enough to wait for in a run
    with tempfile.TemporaryDirectory() as temporary:
        wanted = f"{wheel.distribution}=={wheel.version}"
        ran = subprocess.run(
            [*download, "--dest", temporary, wanted], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            reason = f"{wanted} cannot be had: {ran.stderr.strip().splitlines()[-1]}"
            if wheel not in ANCESTORS:  # these are made for older Pythons, too old for some
                _refused.append(reason)
            raise WheelError(reason)
        (found,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(found) as archive:
            archive.extractall(folder)
    shutil.rmtree(folder / wheel.module / "__pycache__", ignore_errors=True)


def without_libraries(content: bytes) -> bytes:
    """Return a shared object that loads without TensorRT's libraries."""
    assert content.startswith(ELF64_LITTLE_ENDIAN), "expected a 64-bit little-endian shared object"
    data = bytearray(content)
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [SECTION.unpack_from(data, sections_at + i * size) for i in range(count)]
    symbols = next(each for each in sections if each[1] == SHT_DYNSYM)
    dynamic = next(each for each in sections if each[1] == SHT_DYNAMIC)
    names_at = sections[symbols[6]][4]

    def name_at(offset: int) -> str:
        start = names_at + offset
        return data[start : data.index(0, start)].decode()

    for at in range(symbols[4], symbols[4] + symbols[5], SYMBOL.size):
        name, info, _other, section, _value, _size = SYMBOL.unpack_from(data, at)
        is_undefined = section == 0 and info >> 4 == STB_GLOBAL
        if is_undefined and name_at(name).endswith(ABSENT_FUNCTIONS):
            data[at + 4] = STB_WEAK << 4 | info & 0xF
    for at in range(dynamic[4], dynamic[4] + dynamic[5], DYNAMIC.size):
        tag, value = DYNAMIC.unpack_from(data, at)
        if tag == DT_NEEDED and name_at(value).startswith(ABSENT_LIBRARIES):
            DYNAMIC.pack_into(data, at, DT_IGNORED, value)
    return bytes(data)


if __name__ == "__main__":
    for each in (*ANCESTORS, *BINDINGS):
        print(bindings(each))
    print(rtx_runtime())
