"""Loading models: each by itself, completely or not at all, and in slots that suit it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from headrace.device.base import Stream
from headrace.engines.base import Engine
from headrace.engines.model_folder import ModelSource
from headrace.engines.ort import OrtContext, OrtEngine
from headrace.errors import ConfigError, EngineError, NotFoundError, UnavailableError
from headrace.loader import Loader, LoadOptions
from headrace.warm_batches import WarmBatches
from helpers import onnx_models
from helpers.loading import Loading
from helpers.onnx_models import FLOAT, SLOW_CONFIG, STRING, model, port, save


@pytest.fixture
def loading(tmp_path: Path) -> Iterator[Loading]:
    """An empty repository; in the end nothing may be open on the device."""
    loading = Loading(tmp_path)
    yield loading
    assert loading.close() == []


def test_one_fault_leaves_the_others_served(loading: Loading) -> None:
    """The broken one is known with its file and reason, and asked for it is not ready."""
    save(onnx_models.adds(1), loading.folder / "good/1/model.onnx")
    broken = save(onnx_models.adds(1), loading.folder / "broken/1/model.onnx")
    broken.write_bytes(b"nonsense")
    assert loading.load() == 1
    assert [model.spec.name for model in loading.catalog.models()] == ["good"]
    reason = loading.catalog.failures["broken", 1]
    assert str(broken) in reason
    assert "ONNX Runtime cannot load it" in reason
    with pytest.raises(UnavailableError, match="'broken' is not at ready state"):
        loading.catalog.find("broken", "")
    with pytest.raises(NotFoundError):
        loading.catalog.find("other", "")


def test_one_broken_version_leaves_the_others_served(loading: Loading) -> None:
    """The newest that works answers for the model."""
    folder = loading.folder / "m"
    save(onnx_models.adds(1), folder / "1/model.onnx")
    save(onnx_models.adds(2), folder / "2/model.onnx").write_bytes(b"nonsense")
    (folder / "config.pbtxt").write_text(onnx_models.VERSIONS_CONFIG)
    assert loading.load() == 1
    assert loading.catalog.find("m", "").spec.version == 1
    with pytest.raises(UnavailableError, match="version 2 is not at ready state"):
        loading.catalog.find("m", "2")
    assert not loading.catalog.is_ready  # strict: every version must be


def test_a_wrong_configuration_names_file_and_field(loading: Loading) -> None:
    """All faults of a model are told at once."""
    save(onnx_models.adds(1), loading.folder / "m/1/model.onnx")
    (loading.folder / "m/config.pbtxt").write_text(
        'input { name: "x" data_type: TYPE_INT8 dims: [ 5 ] }'
    )
    assert loading.load() == 1
    reason = loading.catalog.failures["m", 1]
    assert str(loading.folder / "m/config.pbtxt") in reason
    assert "data_type" in reason
    assert "dims" in reason


def test_a_model_larger_than_the_staging_memory_is_a_wrong_configuration(loading: Loading) -> None:
    """Not even its smallest request would fit: the text names the flag to raise."""
    ports = [onnx_models.port(name, onnx_models.FLOAT, ["n", 300_000]) for name in "xy"]
    node = helper.make_node("Neg", ["x"], ["y"])
    save(onnx_models.model([node], ports[:1], ports[1:]), loading.folder / "big/1/model.onnx")
    save(onnx_models.adds(1), loading.folder / "small/1/model.onnx")
    assert loading.load() == 1
    assert "--pinned-memory-pool-byte-size" in loading.catalog.failures["big", 1]
    assert loading.catalog.find("small", "").is_ready


class Buggy(Loader):
    """Has a bug that one model shows."""

    def _open_engine(self, path: Path, source: ModelSource) -> Engine:
        if source.name == "unlucky":
            raise KeyError("secret")
        return super()._open_engine(path, source)


def test_a_bug_that_one_model_shows_leaves_the_others_served(
    loading: Loading, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the traceback, the reason that clients can see has nothing of it."""
    for name in ("lucky", "unlucky"):
        save(onnx_models.adds(1), loading.folder / name / "1/model.onnx")
    loading.loader_type = Buggy
    assert loading.load() == 1
    assert loading.catalog.find("lucky", "").is_ready
    assert "secret" not in loading.catalog.failures["unlucky", 1]
    assert "KeyError: 'secret'" in caplog.text


class OneContext(OrtEngine):
    """An engine that has the memory for one context only."""

    num_contexts = 0

    def open_context(self, stream: Stream) -> OrtContext:
        self.num_contexts += 1
        if self.num_contexts > 2:  # the first is for the measurement
            raise EngineError("no memory for another context")
        return super().open_context(stream)


class OneContextLoader(Loader):
    """Loads such engines."""

    def _open_engine(self, path: Path, source: ModelSource) -> Engine:
        return OneContext(path, self._device)


def test_a_slot_that_cannot_be_opened_leaves_nothing_open(loading: Loading) -> None:
    """Neither its stream nor the slots before it; the model is not served."""
    save(onnx_models.slow(), loading.folder / "slow/1/model.onnx")
    (loading.folder / "slow/config.pbtxt").write_text(SLOW_CONFIG.replace("count: 1", "count: 3"))
    loading.loader_type = OneContextLoader
    assert loading.load() == 1
    assert "no memory for another context" in loading.catalog.failures["slow", 1]
    loading.blocks.close()
    assert loading.device._ledger.names() == []


def test_a_short_model_runs_inline_and_a_slow_one_in_its_slots(loading: Loading) -> None:
    """What is shorter than a hand-over to a thread is not handed over."""
    save(onnx_models.adds(1), loading.folder / "short/1/model.onnx")
    save(onnx_models.slow(), loading.folder / "slow/1/model.onnx")
    (loading.folder / "slow/config.pbtxt").write_text(SLOW_CONFIG.replace("count: 1", "count: 3"))
    assert loading.load() == 0
    (short,) = loading.catalog.find("short", "").line.pool.slots
    slow = loading.catalog.find("slow", "").line.pool.slots
    assert (short.is_inline, len(short.lanes)) == (True, 1)
    assert [(slot.is_inline, len(slot.lanes)) for slot in slow] == [(False, 2)] * 3


def test_a_model_of_strings_never_runs_inline(loading: Loading) -> None:
    """However short it is on the few and empty ones of the warm-up."""
    x, y = (port(name, STRING, [1, 1]) for name in "xy")
    built = model([helper.make_node("Identity", ["x"], ["y"])], [x], [y])
    save(built, loading.folder / "m/1/model.onnx")
    assert loading.load() == 0
    assert not loading.catalog.find("m", "").line.pool.is_inline


WITHOUT_BATCHES = """max_batch_size: 0
  input { name: "x" data_type: TYPE_FP32 dims: [-1, 4] }
  output { name: "y" data_type: TYPE_FP32 dims: [-1, 4] }"""


@pytest.mark.parametrize(
    ("shape", "config", "is_inline"),
    [
        (["n", 4], "max_batch_size: 8", True),  # 32 floats at most
        (["n", "m"], "max_batch_size: 8", False),
        ([4, "n"], "max_batch_size: 0", False),
        (["n", 4], WITHOUT_BATCHES, False),  # one request may have all the rows
    ],
)
def test_only_models_of_bounded_inputs_run_inline(
    loading: Loading, shape: list[int | str], config: str, is_inline: bool
) -> None:
    """What is measured at load is what a request takes at most."""
    x, y = (port(name, FLOAT, shape) for name in "xy")
    save(
        model([helper.make_node("Neg", ["x"], ["y"])], [x], [y]), loading.folder / "m/1/model.onnx"
    )
    (loading.folder / "m/config.pbtxt").write_text(config)
    assert loading.load() == 0
    assert loading.catalog.find("m", "").line.pool.is_inline is is_inline


@pytest.mark.parametrize("asked", ["", "dynamic_batching { }"])
def test_batches_that_are_asked_for_are_all_tried(
    loading: Loading, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Others on a CPU while they pay."""
    made: list[bool] = []

    def note(*args: Any, is_optional: bool, **more: Any) -> WarmBatches:
        made.append(is_optional)
        return WarmBatches(*args, is_optional=is_optional, **more)

    monkeypatch.setattr("headrace.opening.WarmBatches", note)
    save(onnx_models.adds(1), loading.folder / "m/1/model.onnx")
    (loading.folder / "m/config.pbtxt").write_text(f"max_batch_size: 8 {asked}")
    assert loading.load() == 0
    assert made == [not asked]


def test_the_operator_s_number_of_slots_is_the_default(tmp_path: Path) -> None:
    """An instance group goes before it."""
    save(onnx_models.slow(), tmp_path / "free/1/model.onnx")
    without_group = SLOW_CONFIG[: SLOW_CONFIG.index("instance_group")]
    (tmp_path / "free/config.pbtxt").write_text(without_group)
    save(onnx_models.slow(), tmp_path / "set/1/model.onnx")
    (tmp_path / "set/config.pbtxt").write_text(SLOW_CONFIG)
    loading = Loading(tmp_path, options=LoadOptions(default_num_slots=3))
    assert loading.load() == 0
    sizes = {m.spec.name: len(m.line.pool.slots) for m in loading.catalog.models()}
    assert sizes == {"free": 3, "set": 1}
    assert loading.close() == []


def test_a_model_that_refuses_zeros_is_served(loading: Loading) -> None:
    """A warm-up that fails is no reason to refuse real data."""
    nodes = [
        onnx_models.number("minus_one", -1, onnx_models.INT64, [1]),
        helper.make_node("Sub", ["i", "minus_one"], ["next"]),
        helper.make_node("Sub", ["next", "far"], ["index"]),
        onnx_models.number("far", 100, onnx_models.INT64, [1]),
    ]
    built = onnx_models.picks()
    assert built.graph.node[0].input[1] == "i"
    built.graph.node[0].input[1] = "index"
    ordered = [nodes[0], nodes[3], nodes[1], nodes[2], *built.graph.node]
    del built.graph.node[:]
    built.graph.node.extend(ordered)
    save(built, loading.folder / "picky/1/model.onnx")
    assert loading.load() == 0
    assert loading.catalog.find("picky", "").is_ready


def test_what_is_not_honoured_is_named_once(
    loading: Loading, caplog: pytest.LogCaptureFixture
) -> None:
    """A field that a user set and that does nothing yet is a warning at load, never silence."""
    save(onnx_models.adds(1), loading.folder / "m/1/model.onnx")
    (loading.folder / "m/config.pbtxt").write_text(
        "max_batch_size: 8 response_cache { enable: true } optimization { eager_batching: true }"
    )
    with caplog.at_level(logging.WARNING):
        assert loading.load() == 0
    texts = [record.getMessage() for record in caplog.records]
    assert len([text for text in texts if "response_cache" in text]) == 1
    assert len([text for text in texts if "eager_batching" in text]) == 1


def test_the_queue_s_bound_comes_from_the_configuration_or_the_operator(tmp_path: Path) -> None:
    """A model's own queue policy goes before the server's flag."""
    for name in ("own", "default"):
        save(onnx_models.adds(1), tmp_path / name / "1/model.onnx")
    (tmp_path / "own/config.pbtxt").write_text(
        "max_batch_size: 8 dynamic_batching { default_queue_policy { max_queue_size: 3 } }"
    )
    loading = Loading(tmp_path, options=LoadOptions(default_max_queue_size=5))
    assert loading.load() == 0
    sizes = {m.spec.name: m.line.max_queue_size for m in loading.catalog.models()}
    assert sizes == {"own": 3, "default": 5}
    assert loading.close() == []


def test_a_plan_without_a_gpu_says_what_is_missing(loading: Loading) -> None:
    """It is a fault of this model on this machine, not of the server."""
    save(onnx_models.adds(1), loading.folder / "good/1/model.onnx")
    folder = loading.folder / "plan/1"
    folder.mkdir(parents=True)
    (folder / "model.plan").write_bytes(b"ftrt" + bytes(60))
    assert loading.load() == 1
    assert loading.catalog.failures["plan", 1]
    assert loading.catalog.find("good", "").is_ready


def test_options_without_auto_complete_need_a_whole_configuration(tmp_path: Path) -> None:
    """As --disable-auto-complete-config says."""
    save(onnx_models.adds(1), tmp_path / "m/1/model.onnx")
    (tmp_path / "m/config.pbtxt").write_text('backend: "onnxruntime"')
    loading = Loading(tmp_path, options=LoadOptions(auto_complete=False))
    assert loading.load() == 1
    with pytest.raises(UnavailableError):
        loading.catalog.find("m", "")
    assert isinstance(loading.catalog.failures["m", 1], str)
    assert loading.close() == []
    assert ConfigError("x").field is None
