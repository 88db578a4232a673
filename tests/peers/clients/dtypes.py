"""Arrays of every type on the wire, and their digests: needs numpy alone."""

from __future__ import annotations

import hashlib

import numpy as np

SHAPE = (2, 5)
NUMPY = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


def arrays() -> dict[str, np.ndarray]:
    """Datatype → values of shape SHAPE, both ends of an integer's range among them."""
    random = np.random.default_rng(7)
    made = {}
    for name, kind in NUMPY.items():
        dtype = np.dtype(kind)
        if dtype.kind in "iu":
            values = random.integers(
                np.iinfo(dtype).min, np.iinfo(dtype).max, SHAPE, dtype, endpoint=True
            )
            values[0, 0], values[0, 1] = np.iinfo(dtype).min, np.iinfo(dtype).max
        elif dtype.kind == "f":
            values = random.standard_normal(SHAPE).astype(dtype)
        else:
            values = random.integers(0, 2, SHAPE).astype(dtype)
        made[name] = values
    strings = [
        b"",
        b"a",
        "\0é".encode(),
        "häuser".encode(),
        b"x" * 300,
        *(b"%d" % i for i in range(5)),
    ]
    made["BYTES"] = np.array(strings, dtype=np.object_).reshape(SHAPE)
    return made


def bf16_exact() -> np.ndarray:
    """float32 values that bfloat16 holds exactly: how they were cut cannot matter."""
    random = np.random.default_rng(8)
    bits = random.integers(0x3F00, 0x4100, SHAPE, np.uint32) << 16
    return bits.view(np.float32)


def as_bf16(values: np.ndarray) -> np.ndarray:
    """bfloat16 as this generation of the client wants it: ml_dtypes where that is, else float32."""
    try:
        import ml_dtypes
    except ImportError:
        return values
    return values.astype(ml_dtypes.bfloat16)


def digest(array: np.ndarray) -> str:
    """Of shape, type and values."""
    body = b"|".join(array.ravel()) if array.dtype == np.object_ else array.tobytes()
    return hashlib.sha256(f"{array.shape}{array.dtype}".encode() + body).hexdigest()
