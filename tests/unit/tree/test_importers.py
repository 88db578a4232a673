"""What needs special hardware or is young is imported by one file each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers.tree import imports, is_within, modules

ONE_IMPORTER = {
    "cuda": "headrace.device.cudart",
    "onnxruntime": "headrace.engines.ort_session",
    "tensorrt": "headrace.engines.trt_modules",
    "tensorrt_bindings": "headrace.engines.trt_modules",
    "tensorrt_dispatch": "headrace.engines.trt_modules",
    "tensorrt_lean": "headrace.engines.trt_modules",
    "tensorrt_rtx": "headrace.engines.trt_modules",
    "pygrpc_native": "headrace.rpc.native_front",
    "pynvml": "headrace.metrics.gpu",
    "nvtx": "headrace.slots.ranges",
}


ON_TOP = {"headrace.engines.ort"}  # is nothing without its importer, and imports it at once


@pytest.mark.parametrize(("library", "importer"), ONE_IMPORTER.items())
def test_a_library_has_one_importer(library: str, importer: str) -> None:
    """No second file can come to depend on it, written as an import statement or by name."""
    assert importer in modules("headrace")
    for package in ("headrace", "headrace_client", "headrace_proto"):
        for name, path in modules(package).items():
            if name == importer:
                continue
            found = [line for line, target in imports(path) if is_within(target, library)]
            assert not found, f"{path}:{found[0]} imports {library}; only {importer} may"
            by_name = f'import_module("{library}'
            assert by_name not in path.read_text("utf-8"), f"{path} imports {library} by name"


def test_importing_the_server_needs_none_of_them() -> None:
    """But for the importers, every module imports on a machine with none of these libraries."""
    adapters = {*ONE_IMPORTER.values(), *ON_TOP}
    names = [name for name in modules("headrace") if name not in {*adapters, "headrace.__main__"}]
    script = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({sorted(ONE_IMPORTER)!r}))\n"  # None: ImportError
        f"for name in {names!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
