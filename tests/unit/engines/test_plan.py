"""What a plan file says about itself, and what is told about files that are none."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines.plan import capability_names, read_plan_header
from headrace.errors import ConfigError

# First 64 bytes of plans that TensorRT-RTX 1.7.1.116 built, by the compute capabilities asked for;
# the contract test of the RTX runtime builds such plans anew.
RTX_TAIL = "00000000000000000000000000000000000000000000000000000000000000"
RTX_HEADERS = {
    ("7.5",): f"76747274000000000200000000000000340a020000000000010701747674727401{RTX_TAIL}",
    ("8.0",): f"76747274000000000200000000000000340a020000000000010701747674727402{RTX_TAIL}",
    ("8.6",): f"76747274000000000200000000000000340a020000000000010701747674727404{RTX_TAIL}",
    ("8.9",): f"76747274000000000200000000000000340a020000000000010701747674727408{RTX_TAIL}",
    ("12.0",): f"76747274000000000200000000000000ec0a020000000000010701747674727410{RTX_TAIL}",
    ("12.1",): f"76747274000000000200000000000000ec0a020000000000010701747674727420{RTX_TAIL}",
    ("8.0", "8.6", "8.9"): (
        f"767472740000000002000000000000003c0a02000000000001070174767472740e{RTX_TAIL}"
    ),
    ("8.0", "8.6", "8.9", "12.0", "12.1", "newer than 12.1"): (  # the default
        f"76747274000000000200000000000000340a02000000000001070174767472747e{RTX_TAIL}"
    ),
}
RTX_PLAN = bytes.fromhex(RTX_HEADERS["8.6",]).ljust(0x20A34, b"\0")
STANDARD_PLAN = b"ftrt" + bytes(20) + bytes((10, 16, 1, 11)) + bytes(4096)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "model.plan"
    path.write_bytes(content)
    return path


def reason_for(folder: Path, content: bytes) -> str:
    path = write(folder, content)
    with pytest.raises(ConfigError) as caught:
        read_plan_header(path)
    assert caught.value.path == str(path)
    return caught.value.reason


@pytest.mark.parametrize(("capabilities", "header"), RTX_HEADERS.items())
def test_header_of_a_real_rtx_plan(
    tmp_path: Path, capabilities: tuple[str, ...], header: str
) -> None:
    """The builder's version, the size and the compute capabilities of RTX plans are read."""
    head = bytes.fromhex(header)
    size_bytes = int.from_bytes(head[16:24], "little")
    found = read_plan_header(write(tmp_path, head.ljust(size_bytes, b"\0")))
    assert (found.kind, found.magic) == ("rtx", "vtrt")
    assert found.version == (1, 7, 1, 116)
    assert found.compute_capabilities == capabilities
    assert found.size_bytes == size_bytes
    assert not found.is_wrapped
    assert found.describe() == (
        f"a plan built by TensorRT-RTX 1.7.1.116 for compute capability {', '.join(capabilities)}"
    )


def test_header_of_a_standard_plan(tmp_path: Path) -> None:
    """A standard plan tells its builder's version; it has no capability mask."""
    found = read_plan_header(write(tmp_path, STANDARD_PLAN))
    assert (found.kind, found.version) == ("standard", (10, 16, 1, 11))
    assert found.compute_capabilities == ()
    assert "TensorRT 10.16.1.11" in found.describe()


def test_newer_layout_keeps_the_kind_and_drops_the_version(tmp_path: Path) -> None:
    """A header layout that we do not know still says which runtime wants it, but no version."""
    content = b"ftrt" + struct.pack("<I", 1) + STANDARD_PLAN[8:]
    found = read_plan_header(write(tmp_path, content))
    assert (found.kind, found.version) == ("standard", None)
    assert "version not told" in found.describe()


@pytest.mark.parametrize("plan", [RTX_PLAN, STANDARD_PLAN], ids=["rtx", "standard"])
def test_json_in_front_is_skipped(tmp_path: Path, plan: bytes) -> None:
    """Where an exporter put a length and a JSON text first, the plan behind it is found."""
    text = json.dumps({"task": "detect", "names": {"0": "pump"}}).encode()
    found = read_plan_header(write(tmp_path, struct.pack("<I", len(text)) + text + plan))
    assert found.is_wrapped
    assert found.offset_bytes == 4 + len(text)
    assert found.size_bytes == len(plan)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"ftrt", ["truncated", "4 bytes", "28"]),
        (STANDARD_PLAN[:27], ["truncated", "27 bytes", "28"]),
        (RTX_PLAN[:63], ["truncated", "63 bytes", "64"]),
        (RTX_PLAN[:-1], ["truncated", str(0x20A33), str(0x20A34)]),
        (RTX_PLAN + b"\0", ["behind its end", str(0x20A35), str(0x20A34)]),
        (b"garbage, and more of it", ["b'garbage,'", "23 bytes", "ftrt", "vtrt"]),
        (b"trtf" + STANDARD_PLAN[4:], ["b'trtf", "ftrt", "vtrt"]),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", ["git lfs pull"]),
        (b"\x08\x09\x12\x07pytorch", ["ONNX"]),
        (b"PK\x03\x04rest", ["PyTorch"]),
        (struct.pack("<I", 2) + b"{}" + b"no plan", ["b'no plan'", "ftrt"]),
        (struct.pack("<I", 1 << 30) + b"{}" + STANDARD_PLAN, ["{}", "ftrt"]),
    ],
)
def test_fault_says_what_was_found_and_expected(
    tmp_path: Path, content: bytes, words: list[str]
) -> None:
    """Every file that is not a whole plan is refused with what it is and what was expected."""
    reason = reason_for(tmp_path, content)
    for word in words:
        assert word in reason


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and a folder are faults of the configuration, not of ours."""
    for path in (tmp_path / "absent.plan", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_plan_header(path)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from([b"", b"ftrt", b"vtrt", b"\x04\0\0\0{  }"]))
def test_any_bytes_give_a_header_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, start: bytes
) -> None:
    """No content of a file gives anything but a header or a ConfigError."""
    path = write(tmp_path_factory.getbasetemp(), start + content)
    try:
        header = read_plan_header(path)
    except ConfigError:
        return
    assert header.offset_bytes + header.size_bytes == len(start + content)
    assert header.describe()


def test_unknown_capability_bits_are_named_by_number() -> None:
    """A bit of a newer release is shown as a bit, not hidden."""
    assert capability_names(0) == ()
    assert capability_names(0b10000000_10) == ("8.0", "unknown (bit 9)")


@pytest.mark.parametrize(
    ("capability", "built_for", "is_for"),
    [
        ("8.6", ("8.6",), True),
        ("8.9", ("8.6",), False),
        ("9.0", ("8.0", "8.6", "8.9", "12.0", "12.1", "newer than 12.1"), False),
        ("12.1", ("8.0", "8.6", "8.9", "12.0", "12.1", "newer than 12.1"), True),
        ("12.3", ("8.0", "8.6", "8.9", "12.0", "12.1", "newer than 12.1"), True),
        ("13.0", ("12.1",), False),
    ],
)
def test_an_rtx_plan_says_which_gpus_it_is_for(
    tmp_path: Path, capability: str, built_for: tuple[str, ...], is_for: bool
) -> None:
    """By the capabilities that it was compiled for, and "newer" means newer than all of them."""
    content = bytes.fromhex(RTX_HEADERS[built_for])
    (stated,) = struct.unpack_from("<Q", content, 16)
    header = read_plan_header(write(tmp_path, content.ljust(stated, b"\0")))
    assert header.is_for(capability) == is_for
