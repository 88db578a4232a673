"""`model_warmup` at load: the model runs with it before it is served, or is not served."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from headrace.catalog import ModelCatalog
from headrace.device.base import Stream
from headrace.device.host import HostDevice
from headrace.engines.base import Binding, Engine, ExecutionContext
from headrace.engines.model_folder import ModelSource
from headrace.engines.ort import OrtEngine
from headrace.engines.repository import find_models
from headrace.errors import UnavailableError
from headrace.loader import Loader, LoadOptions, load_all
from headrace.metrics import Metrics
from headrace.slots.blocks import BlockPool
from helpers import onnx_models
from helpers.onnx_models import save

PICKS = """
backend: "onnxruntime"
max_batch_size: 0
input { name: "i" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
instance_group { count: 2 kind: KIND_CPU }
"""
ADDS = """
backend: "onnxruntime"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }
"""


class Seen(ExecutionContext):
    """A context that notes what it ran with, by shapes and content."""

    def __init__(self, inner: ExecutionContext, seen: list[tuple[object, ...]]) -> None:
        self._inner = inner
        self._seen = seen

    def bind(
        self, layout: object, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        self._seen.append(layout.input_shapes)  # type: ignore[attr-defined]
        return self._inner.bind(layout, input_ptrs, output_ptrs)  # type: ignore[arg-type]

    def enqueue(self, binding: Binding) -> None:
        self._inner.enqueue(binding)

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[ModelCatalog]:
    """Closed in the end."""
    catalog = ModelCatalog()
    yield catalog
    catalog.close()


def load(folder: Path, catalog: ModelCatalog) -> BlockPool:
    device = HostDevice()
    blocks = BlockPool(device, 1 << 20)
    loader = Loader(device, blocks, Metrics(), LoadOptions(), clock=time.monotonic)
    load_all(find_models([folder]), loader, catalog)
    return blocks


def picks(folder: Path, warmup: str) -> None:
    """A table of four: a number outside it fails the run."""
    save(onnx_models.picks(), folder / "picks/1/model.onnx")
    (folder / "picks/config.pbtxt").write_text(f"{PICKS} model_warmup [ {warmup} ]")


def sample(data: str, name: str = "s", **more: int) -> str:
    fields = " ".join(f"{key}: {value}" for key, value in more.items())
    value = f"data_type: TYPE_INT64 dims: 3 {data}"
    return f'{{ name: "{name}" {fields} inputs {{ key: "i" value {{ {value} }} }} }}'


def reason(catalog: ModelCatalog) -> str:
    with pytest.raises(UnavailableError):
        catalog.find("picks", "")
    (why,) = catalog.failures.values()
    return why


def test_a_model_is_served_when_its_samples_have_run(
    tmp_path: Path, catalog: ModelCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """And what they were laid out as is kept for requests."""
    caplog.set_level(logging.INFO)
    picks(tmp_path, f"{sample('zero_data: true', 'a')}, {sample('zero_data: true', 'b', count=3)}")
    blocks = load(tmp_path, catalog)
    served = catalog.find("picks", "")
    assert served.is_ready
    assert blocks.num_leased == 0
    for name in "ab":
        assert f"picks: warmed up with '{name}' (1 rows)" in caplog.text
    assert "not honoured" not in caplog.text
    assert "does not honour" not in caplog.text


def test_a_sample_that_fails_fails_the_load(tmp_path: Path, catalog: ModelCatalog) -> None:
    """The reason has the file, the sample, and what the engine said; nothing stays leased."""
    (tmp_path / "picks/warmup").mkdir(parents=True)
    (tmp_path / "picks/warmup/bad.bin").write_bytes(np.array([0, 9, 1]).tobytes())
    picks(tmp_path, sample('input_data_file: "bad.bin"', "bad"))
    blocks = load(tmp_path, catalog)
    why = reason(catalog)
    assert 'picks/config.pbtxt: model_warmup[0]: "bad" failed: ' in why
    assert "ONNX Runtime" in why
    assert blocks.num_leased == 0


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('input_data_file: "none.bin"', "warmup/none.bin: cannot be read"),
        ('input_data_file: "../config.pbtxt"', "leads out of the model's folder"),
        ("", "needs one of zero_data"),
    ],
)
def test_a_sample_that_is_wrong_fails_the_load(
    tmp_path: Path, catalog: ModelCatalog, data: str, text: str
) -> None:
    """Before anything runs with it."""
    picks(tmp_path, sample(data))
    load(tmp_path, catalog)
    assert text in reason(catalog)


def test_a_sample_that_is_too_large_is_not_even_made(tmp_path: Path, catalog: ModelCatalog) -> None:
    """A shape of terabytes costs nothing but its refusal."""
    picks(tmp_path, sample("zero_data: true").replace("dims: 3", f"dims: {1 << 40}"))
    load(tmp_path, catalog)
    assert "bytes of staging memory, more than there is" in reason(catalog)


class SeenEngine(OrtEngine):
    """Notes what its contexts are bound to."""

    seen: list[tuple[object, ...]]

    def open_context(self, stream: Stream) -> ExecutionContext:  # type: ignore[override]
        return Seen(super().open_context(stream), self.seen)


def test_rows_are_the_same_data_again(tmp_path: Path, catalog: ModelCatalog) -> None:
    """A sample of three rows runs as a batch of three; one of none does not run."""
    save(onnx_models.adds(1), tmp_path / "adds/1/model.onnx")
    value = "value { data_type: TYPE_FP32 dims: 4 random_data: true }"
    samples = f'{{ batch_size: 3 inputs {{ key: "x" {value} }} }}, {{ name: "none" }}'
    (tmp_path / "adds/config.pbtxt").write_text(f"{ADDS} model_warmup [ {samples} ]")
    seen: list[tuple[object, ...]] = []

    class Noting(Loader):
        def _open_engine(self, path: Path, source: ModelSource) -> Engine:
            engine = SeenEngine(path, self._device)
            engine.seen = seen
            return engine

    device = HostDevice()
    blocks = BlockPool(device, 1 << 20)
    loader = Noting(device, blocks, Metrics(), LoadOptions(), clock=time.monotonic)
    load_all(find_models([tmp_path]), loader, catalog)
    assert catalog.failures == {}
    assert ((3, 4),) in seen
