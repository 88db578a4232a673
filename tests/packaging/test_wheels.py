"""What is inside the three wheels, and what their metadata promises."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from helpers.tree import PACKAGES, modules
from helpers.wheels import DISTRIBUTIONS, metadata, requirements

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(180)
EVERY_PACKAGE = pytest.mark.parametrize("package", PACKAGES)


@EVERY_PACKAGE
def test_holds_its_package_and_nothing_else(package: str, wheels: dict[str, Path]) -> None:
    """Every module and the mark of its types are in; tests, caches and neighbours are not."""
    names = zipfile.ZipFile(wheels[package]).namelist()
    own = {name for name in names if ".dist-info/" not in name}
    root = PACKAGES[package]
    assert {name.split("/")[0] for name in own} == {package}
    assert {str(path.relative_to(root)) for path in modules(package).values()} <= own
    assert f"{package}/py.typed" in own
    assert not [name for name in own if "test" in name or "__pycache__" in name]


def test_the_contract_ships_its_proto_files_and_types(wheels: dict[str, Path]) -> None:
    """Who needs the protocol finds the .proto, the generated code and its .pyi together."""
    names = set(zipfile.ZipFile(wheels["headrace_proto"]).namelist())
    for name in ("inference", "model_config"):
        stem = f"headrace_proto/v1/{name}"
        assert {f"{stem}.proto", f"{stem}_pb2.py", f"{stem}_pb2.pyi"} <= names


@EVERY_PACKAGE
def test_metadata_is_complete(package: str, wheels: dict[str, Path]) -> None:
    """License, its text, the oldest Python, a description: what an index shows."""
    fields = metadata(wheels[package])
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["License-File"] == "LICENSE"
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["Name"] == f"headrace-{DISTRIBUTIONS[package]}"
    assert fields["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in (fields.get_all("Classifier") or [])
    assert "Apache License" in zipfile.ZipFile(wheels[package]).read(
        next(n for n in zipfile.ZipFile(wheels[package]).namelist() if n.endswith("LICENSE"))
    ).decode("utf-8")


@EVERY_PACKAGE
def test_every_requirement_has_a_lower_bound(package: str, wheels: dict[str, Path]) -> None:
    """No resolver may choose a release that was never meant."""
    required = requirements(wheels[package])
    assert required
    loose = [text for text in required if not any(mark in text for mark in (">=", "==", "["))]
    assert not loose


def test_the_client_needs_three_libraries(wheels: dict[str, Path]) -> None:
    """grpcio, numpy and protobuf, beside the wire contract."""
    required = requirements(wheels["headrace_client"])
    names = {text.split(">")[0].split("<")[0] for text in required if "extra ==" not in text}
    assert names == {"grpcio", "headrace-proto", "numpy", "protobuf"}


def test_no_extra_brings_both_onnx_runtimes(wheels: dict[str, Path]) -> None:
    """The CPU and the GPU build overwrite each other, so each is in one extra alone."""
    required = requirements(wheels["headrace"])
    bringing = {
        text.split(">=")[0]: text.split("; ")[1] for text in required if text.startswith("onnx")
    }
    assert bringing == {
        "onnxruntime": "extra == 'onnxruntime'",
        "onnxruntime-gpu": "extra == 'onnxruntime-gpu'",
    }
