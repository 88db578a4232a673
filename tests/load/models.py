"""The models that load is put on, written as a repository: `python -m load.models FOLDER [NAME…]`.

Every model takes `x` and gives `y` (`pair` takes `a` and `b`), weights come from a fixed seed, and
what a model should answer comes from ONNX Runtime called directly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto

from load.graphs import Net, elementwise

Array = npt.NDArray[Any]
IMAGE = (3, 224, 224)
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
MAX_BATCH_SIZE = 32

# wire name → ONNX type, numpy type
DTYPES: dict[str, tuple[int, Any]] = {
    "BOOL": (TensorProto.BOOL, np.bool_),
    "UINT8": (TensorProto.UINT8, np.uint8),
    "UINT16": (TensorProto.UINT16, np.uint16),
    "UINT32": (TensorProto.UINT32, np.uint32),
    "UINT64": (TensorProto.UINT64, np.uint64),
    "INT8": (TensorProto.INT8, np.int8),
    "INT16": (TensorProto.INT16, np.int16),
    "INT32": (TensorProto.INT32, np.int32),
    "INT64": (TensorProto.INT64, np.int64),
    "FP16": (TensorProto.FLOAT16, np.float16),
    "FP32": (TensorProto.FLOAT, np.float32),
    "FP64": (TensorProto.DOUBLE, np.float64),
    "BF16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "BYTES": (TensorProto.STRING, np.object_),
}


@dataclass(frozen=True)
class LoadModel:
    """One model of the catalogue.

    Args:
        name: of the model and its folder.
        datatype: of input `x`, the name on the wire.
        dims: of one row of `x`; -1 where the size is free.
        build: makes the ONNX model.
        max_batch_size: written into config.pbtxt; None writes none, so that it is completed.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    build: Callable[[], onnx.ModelProto]
    max_batch_size: int | None = MAX_BATCH_SIZE

    def sample(self, rows: int = 1, *, seed: int = 0, free: int = 16) -> Array:
        """Random (rows, *dims) values for `x`; free sizes become `free`."""
        shape = (rows, *(free if dim < 0 else dim for dim in self.dims))
        return random_array(self.datatype, shape, seed)


def random_array(datatype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Values all over the type: the full range of integers, finite floats, odd strings."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(DTYPES[datatype][1])
    if datatype == "BYTES":
        values = np.empty(shape, np.object_)
        for index in np.ndindex(shape):
            letters = random.choice(list("ab\0é漢"), int(random.integers(0, 12)))
            values[index] = "".join(letters).encode()  # ONNX strings are UTF-8
        return values
    if datatype == "BOOL":
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return random.standard_normal(shape).astype(dtype)


def _identity(name: str, datatype: str, dims: tuple[int | str, ...]) -> onnx.ModelProto:
    kind = DTYPES[datatype][0]
    return elementwise(name, "Identity", [("x", "y", kind, ("batch", *dims))])


def _pair() -> onnx.ModelProto:
    return elementwise(
        "pair",
        "Identity",
        [
            ("a", "p", TensorProto.FLOAT, ("batch", 4)),
            ("b", "q", TensorProto.INT32, ("batch", 2)),
        ],
    )


def _first(net: Net, uint8: bool, mean: tuple[float, ...], deviation: tuple[float, ...]) -> str:
    return net.normalise(mean, deviation) if uint8 else "x"


def _input_type(net: Net, uint8: bool) -> int:
    return TensorProto.UINT8 if uint8 else net.float_type


def _mlp(name: str, *, uint8: bool) -> onnx.ModelProto:
    net = Net(name)
    last = _first(net, uint8, (0.5,), (0.25,))
    for num_in, num_out in ((64, 256), (256, 256)):
        last = net.dense(last, num_in, num_out, relu=True)
    return net.model(net.dense(last, 256, 10), _input_type(net, uint8), (64,), 10)


# MobileNet v1 at half width: (channels out, stride) of its depthwise-separable blocks
_BLOCKS = (
    (32, 1),
    (64, 2),
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    *((256, 1),) * 5,
    (512, 2),
    (512, 1),
)


def _conv(name: str, *, uint8: bool) -> onnx.ModelProto:
    net = Net(name)
    last, channels = net.conv(_first(net, uint8, _MEAN, _DEVIATION), 3, 16, 3, 2), 16
    for num_out, stride in _BLOCKS:
        last = net.conv(last, channels, channels, 3, stride, group=channels)
        last, channels = net.conv(last, channels, num_out, 1), num_out
    out = net.dense(net.pooled(last), channels, 1000)
    return net.model(out, _input_type(net, uint8), IMAGE, 1000)


# ResNet-50: (blocks, channels within, stride of the first) of its four stages; out = 4 x within
_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))


def _bottleneck(net: Net, source: str, num_in: int, inner: int, stride: int) -> str:
    last = net.conv(source, num_in, inner, 1)
    last = net.conv(last, inner, inner, 3, stride)
    # A small gain keeps 16 blocks of random weights within float16.
    last = net.conv(last, inner, 4 * inner, 1, relu=False, gain=0.2)
    if num_in != 4 * inner:
        source = net.conv(source, num_in, 4 * inner, 1, stride, relu=False, gain=1.0)
    return net.residual(last, source)


def _resnet50(name: str, *, half: bool, uint8: bool) -> onnx.ModelProto:
    net = Net(name, half=half)
    last = net.conv(_first(net, uint8, _MEAN, _DEVIATION), 3, 64, 7, 2)
    last, channels = net.max_pool(last), 64
    for blocks, inner, first_stride in _STAGES:
        for index in range(blocks):
            last = _bottleneck(net, last, channels, inner, first_stride if index == 0 else 1)
            channels = 4 * inner
    out = net.dense(net.pooled(last), channels, 1000)
    return net.model(out, _input_type(net, uint8), IMAGE, 1000)


def _slow() -> onnx.ModelProto:
    net = Net("slow")
    out = net.dense(net.squares("x", 4, 384, 12), 384, 4)
    return net.model(out, TensorProto.FLOAT, (4,), 4)


# Sizes that services see: a row of features, an image in bytes, in floats, a full HD frame.
_SIZED: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("identity_64b", "FP32", (16,)),
    ("identity_150kb", "UINT8", IMAGE),
    ("identity_600kb", "FP32", IMAGE),
    ("identity_6mb", "UINT8", (3, 1080, 1920)),
)


def _identities() -> Iterator[LoadModel]:
    for datatype in DTYPES:
        name = f"identity_{datatype.lower()}"
        yield LoadModel(name, datatype, (-1,), partial(_identity, name, datatype, ("width",)), None)
    for name, datatype, dims in _SIZED:
        yield LoadModel(name, datatype, dims, partial(_identity, name, datatype, dims))


def _networks(*, uint8: bool) -> Iterator[LoadModel]:
    """The networks that compute, fed with floats or with bytes that they normalise themselves."""
    suffix, datatype = ("_u8", "UINT8") if uint8 else ("", "FP32")
    mlp, conv = f"mlp{suffix}", f"conv{suffix}"
    yield LoadModel(mlp, datatype, (64,), partial(_mlp, mlp, uint8=uint8))
    yield LoadModel(conv, datatype, IMAGE, partial(_conv, conv, uint8=uint8))
    for precision in ("fp32", "fp16"):
        name = f"resnet50_{precision}{suffix}"
        build = partial(_resnet50, name, half=precision == "fp16", uint8=uint8)
        yield LoadModel(name, "UINT8" if uint8 else precision.upper(), IMAGE, build)


_PAIR = LoadModel("pair", "FP32", (4,), _pair, 8)
_SLOW = LoadModel("slow", "FP32", (4,), _slow, 8)  # 1.4 billion operations for 16 bytes
_MODELS = (*_identities(), _PAIR, _SLOW, *_networks(uint8=False), *_networks(uint8=True))
CATALOGUE = {model.name: model for model in _MODELS}
SMALL = tuple(name for name in CATALOGUE if not name.startswith("resnet50"))  # 100 MB each left out


def write_repository(folder: Path, names: Iterable[str] = SMALL) -> Path:
    """Writes the named models in Triton's layout below `folder`, which it returns."""
    for name in names:
        model = CATALOGUE[name]
        version = folder / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        onnx.save(model.build(), str(version / "model.onnx"))
        if model.max_batch_size is not None:
            config = (
                f'name: "{name}"\nbackend: "onnxruntime"\nmax_batch_size: {model.max_batch_size}\n'
            )
            (folder / name / "config.pbtxt").write_text(config)
    return folder


def model_path(repository: Path, name: str) -> Path:
    """The ONNX file of a model below a repository."""
    return repository / name / "1" / "model.onnx"


def session(path: Path, num_threads: int = 1) -> ort.InferenceSession:
    """ONNX Runtime itself on a model file, on the CPU."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = num_threads
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def expected(repository: Path, name: str, x: Array) -> Array:
    """What ONNX Runtime, called directly, answers to `x`; an identity answers `x` itself."""
    if name.startswith("identity_"):
        return x
    outputs: list[Array] = session(model_path(repository, name)).run(None, {"x": x})
    return outputs[0]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_repository(target, sys.argv[2:] or CATALOGUE)
    for path in sorted(target.glob("*/1/model.onnx")):
        print(f"{path.stat().st_size:>12,} bytes  {path}")
