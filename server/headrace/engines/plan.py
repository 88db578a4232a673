"""Reads the first bytes of a plan file: who built it and for what, without TensorRT or a GPU.

A plan begins with a magic of four letters (`ftrt` TensorRT, `vtrt` TensorRT-RTX) and the version of
its builder; an RTX plan also says its own size and which compute capabilities it was compiled for.
Some exporters put a length and a JSON text in front; the plan then starts after them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.errors import ConfigError

Kind = Literal["standard", "rtx"]
Version = tuple[int, int, int, int]

MAGICS: dict[bytes, Kind] = {b"ftrt": "standard", b"vtrt": "rtx"}
PRODUCTS: dict[Kind, str] = {"standard": "TensorRT", "rtx": "TensorRT-RTX"}

STANDARD_HEADER_BYTES = 28
"""Up to and with the builder's version, which is as far as the layout is known for both kinds."""

RTX_HEADER_BYTES = 64
"""What the RTX runtime itself reports as the size of its header."""

MAX_WRAPPER_BYTES = 1 << 20
"""A JSON text in front is a few kB; a length beyond this is no such text."""

RTX_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1", "newer than 12.1")
"""By bit of the mask, lowest first, read from plans built for one capability each."""

LOOKALIKES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer: fetch the file itself with `git lfs pull`"),
    (b"\x08", "an ONNX model perhaps: name it model.onnx"),
    (b"PK\x03\x04", "a zip archive (a PyTorch file is one): convert it to a plan"),
    (b"\x1f\x8b", "a gzip file: unpack it"),
    (b"\x89HDF", "an HDF5 file: convert it to a plan"),
)


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """What a plan says about itself."""

    path: Path
    kind: Kind
    magic: str
    version: Version | None  # of the builder; None when the header's layout is a newer one
    size_bytes: int  # of the plan, without what stands in front of it
    offset_bytes: int  # where the plan starts in the file
    capability_mask: int  # RTX only, else 0
    compute_capabilities: tuple[str, ...]  # RTX only, else empty

    @property
    def is_wrapped(self) -> bool:
        """True when a JSON text stands in front of the plan."""
        return self.offset_bytes > 0

    @property
    def version_text(self) -> str:
        """Return the builder's version as its product writes it."""
        return ".".join(map(str, self.version)) if self.version else "(version not told)"

    def is_for(self, capability: str) -> bool:
        """Say whether an RTX plan was compiled for a compute capability, such as "8.6"."""
        return _rtx_name(capability) in self.compute_capabilities

    def describe(self) -> str:
        """Say in a few words what the plan was built by and for."""
        built_by = f"{PRODUCTS[self.kind]} {self.version_text}"
        if self.kind != "rtx":
            return f"a plan built by {built_by}, for the GPU model it was built on"
        capabilities = ", ".join(self.compute_capabilities) or "none"
        return f"a plan built by {built_by} for compute capability {capabilities}"


def read_plan_header(path: Path) -> PlanHeader:
    """Read the header of a plan file.

    Raises:
        ConfigError: The file cannot be read, is no plan, or is not all of one.
    """
    try:
        with path.open("rb") as file:
            file_bytes = file.seek(0, 2)
            file.seek(0)
            head = file.read(RTX_HEADER_BYTES)
            offset_bytes = _offset(head, file_bytes)
            file.seek(offset_bytes)
            head = file.read(RTX_HEADER_BYTES) if offset_bytes else head
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=str(path)) from error
    if head[:4] not in MAGICS:
        raise ConfigError(_not_a_plan(head, file_bytes), path=str(path))
    return _parse(path, head, offset_bytes, file_bytes - offset_bytes)


def _offset(head: bytes, file_bytes: int) -> int:
    """Return how many bytes a length and a JSON text take in front of the plan, 0 without them."""
    if len(head) < 8 or head[4:5] != b"{":
        return 0
    (json_bytes,) = struct.unpack_from("<I", head)
    is_plausible = 2 <= json_bytes <= MAX_WRAPPER_BYTES and 4 + json_bytes < file_bytes
    return 4 + int(json_bytes) if is_plausible else 0


def _parse(path: Path, head: bytes, offset_bytes: int, size_bytes: int) -> PlanHeader:
    kind = MAGICS[head[:4]]
    expected_bytes = RTX_HEADER_BYTES if kind == "rtx" else STANDARD_HEADER_BYTES
    if len(head) < expected_bytes:
        raise ConfigError(
            f"is truncated: {size_bytes} bytes, but the header of a {PRODUCTS[kind]} plan has "
            f"{expected_bytes} bytes; copy the file again",
            path=str(path),
        )
    (layout,) = struct.unpack_from("<I", head, 4)
    version = struct.unpack_from("4B", head, 24) if layout == 0 else None
    mask = 0
    if kind == "rtx" and layout == 0:
        (stated_bytes,) = struct.unpack_from("<Q", head, 16)
        if stated_bytes != size_bytes:
            raise ConfigError(_wrong_size(size_bytes, stated_bytes), path=str(path))
        (mask,) = struct.unpack_from("<I", head, 32)
    return PlanHeader(
        path=path,
        kind=kind,
        magic=head[:4].decode(),
        version=version,
        size_bytes=size_bytes,
        offset_bytes=offset_bytes,
        capability_mask=mask,
        compute_capabilities=capability_names(mask),
    )


def capability_names(mask: int) -> tuple[str, ...]:
    """Name the compute capabilities of an RTX plan's mask, lowest first."""
    bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    known = len(RTX_CAPABILITIES)
    return tuple(RTX_CAPABILITIES[bit] if bit < known else f"unknown (bit {bit})" for bit in bits)


def is_for_rtx(capability: str) -> bool:
    """Say whether TensorRT-RTX runs on GPUs of a compute capability at all."""
    return _rtx_name(capability) in RTX_CAPABILITIES


def _rtx_name(capability: str) -> str:
    """Return how a mask of RTX would name a capability: all that are newer are one."""
    newest, newer = RTX_CAPABILITIES[-2:]
    return newer if _numbers(capability) > _numbers(newest) else capability


def _numbers(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split(".") if part.isdigit())


def _wrong_size(size_bytes: int, stated_bytes: int) -> str:
    fault = "is truncated" if size_bytes < stated_bytes else "has bytes behind its end"
    return f"{fault}: {size_bytes} bytes, but its header says {stated_bytes}; copy the file again"


def _not_a_plan(head: bytes, file_bytes: int) -> str:
    if not head:
        return "is empty; expected a TensorRT plan"
    guess = next((text for start, text in LOOKALIKES if head.startswith(start)), "")
    found = f"found {head[:8]!r} at the start of {file_bytes} bytes"
    expected = "expected the magic b'ftrt' (TensorRT) or b'vtrt' (TensorRT-RTX)"
    return f"is no TensorRT plan: {found}{f' ({guess})' if guess else ''}, {expected}"
