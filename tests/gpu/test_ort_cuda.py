"""ONNX Runtime's CUDA provider in real slots, held against its CPU provider called directly."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from headrace.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from helpers.ort_cuda_rig import OrtCudaRig

pytestmark = pytest.mark.gpu

# Of the largest output. FP32 is computed with TF32's ten bits of mantissa, as FP16 has them.
TOLERANCE = 0.02


@pytest.fixture(autouse=True)
def _needs_what_makes_its_models(needs_cuda_provider: None) -> None:
    pytest.importorskip("ml_dtypes", reason="ml_dtypes, which makes the models, is not installed")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, written when asked for."""
    return tmp_path_factory.mktemp("models")


def path_of(repository: Path, name: str) -> Path:
    """Write a model of the catalogue, once."""
    from load.models import model_path, write_repository

    path = model_path(repository, name)
    if not path.exists():
        write_repository(repository, [name])
    return path


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[OrtCudaRig]:
    """A rig that is at rest and closed in the end."""
    from helpers.ort_cuda_rig import OrtCudaRig

    rig = OrtCudaRig(path, **options)
    try:
        yield rig
        rig.run()
    finally:
        rig.close()


def on_cpu(path: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the CPU provider answers."""
    from load.models import session

    output: np.ndarray[Any, Any] = session(path, 8).run(None, {"x": x})[0]
    return output


def is_near(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> bool:
    """Equal within the tolerance of the narrowest arithmetic that either used."""
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    return got.shape == wanted.shape and bool(
        np.abs(got - wanted).max() <= TOLERANCE * np.abs(wanted).max()
    )


@pytest.mark.parametrize("has_graphs", [False, True], ids=["plain", "graphs"])
@pytest.mark.parametrize("name", ["mlp", "mlp_u8", "resnet50_fp32", "resnet50_fp16_u8"])
def test_the_gpu_answers_as_the_cpu_does(name: str, has_graphs: bool, repository: Path) -> None:
    """For two batch sizes on both lanes, again and again, so that graphs are captured and used."""
    from load.models import CATALOGUE

    path = path_of(repository, name)
    with opened(path, num_slots=1, has_graphs=has_graphs) as rig:
        for seed, rows in enumerate((1, 3)):
            samples = [CATALOGUE[name].sample(rows, seed=seed + 10 * turn) for turn in range(3)]
            wanted = [on_cpu(path, sample) for sample in samples]
            assert not is_near(wanted[0], wanted[1])
            for turn in range(9):
                assert is_near(rig.ask(samples[turn % 3]), wanted[turn % 3]), (rows, turn)
        if has_graphs:
            assert rig.tally.num_captured > 0
            assert rig.tally.num_hits > 0
            assert rig.tally.num_misses["refused"] == 0


@pytest.mark.parametrize("has_graphs", [False, True], ids=["plain", "graphs"])
@pytest.mark.parametrize("name", ["mlp", "resnet50_fp16_u8"])
def test_slots_on_their_own_streams_do_not_see_each_other(
    name: str, has_graphs: bool, repository: Path
) -> None:
    """Hundreds of different requests in flight on four slots: every answer is its own input's."""
    from load.models import CATALOGUE

    path = path_of(repository, name)
    samples = [CATALOGUE[name].sample(1 + seed % 2, seed=seed) for seed in range(12)]
    wanted = [on_cpu(path, sample) for sample in samples]
    with opened(path, num_slots=4, has_graphs=has_graphs) as rig:
        for sample in samples[:2] * 12:  # one at a time, so that every lane may capture
            rig.ask(sample)
        requests = [(turn % 12, rig.call(samples[turn % 12])) for turn in range(240)]
        rig.run()
        for place, request in requests:
            assert is_near(rig.answer(request), wanted[place])
        assert rig.blocks.num_leased == 0
        assert all(slot.context is not rig.slots[0].context for slot in rig.slots[1:])


@pytest.mark.parametrize("has_graphs", [False, True], ids=["plain", "graphs"])
def test_enqueueing_waits_for_nothing(has_graphs: bool, repository: Path) -> None:
    """While the streams are held, every lane is enqueued, and the thread goes on."""
    from headrace.slots.state import LaneState
    from helpers.cudart_rig import Latch
    from load.models import CATALOGUE

    path = path_of(repository, "mlp")
    x = CATALOGUE["mlp"].sample()
    with opened(path, num_slots=2, has_graphs=has_graphs) as rig:
        for _ in range(20):
            rig.ask(x)
        latch = Latch()
        rescue = threading.Timer(10.0, latch.let_go)  # a run that waits would wait for ever
        rescue.start()
        for stream in rig.streams:
            latch.hold(stream)
        requests = [rig.call(x) for _ in range(4)]
        rig.scheduler.step(time.monotonic())
        rig.scheduler.step(time.monotonic())
        assert rescue.is_alive(), "enqueueing waited for the GPU"
        states = [lane.state for slot in rig.slots for lane in slot.lanes]
        assert states == [LaneState.IN_FLIGHT] * 4
        rescue.cancel()
        latch.let_go()
        rig.run()
        wanted = on_cpu(path, x)
        assert all(is_near(rig.answer(request), wanted) for request in requests)
        latch.free()


def test_another_thread_may_go_on_with_what_one_has_begun(repository: Path) -> None:
    """Models are loaded and warmed up by one thread and served by another."""
    from load.models import CATALOGUE

    path = path_of(repository, "mlp")
    x = CATALOGUE["mlp"].sample()
    for has_graphs in (False, True):
        with opened(path, num_slots=1, has_graphs=has_graphs) as rig:
            for _ in range(8):
                rig.ask(x)
            answers: list[np.ndarray[Any, Any]] = []

            def serve(rig: OrtCudaRig = rig, answers: list[Any] = answers) -> None:
                rig.device.bind_thread()
                answers.extend(rig.ask(x) for _ in range(8))

            thread = threading.Thread(target=serve)
            thread.start()
            thread.join()
            assert len(answers) == 8
            wanted = on_cpu(path, x)
            assert all(is_near(answer, wanted) for answer in answers)


def test_a_run_that_fails_ends_its_own_request_alone(tmp_path: Path) -> None:
    """A shape that the model cannot take is that request's error; the slot goes on."""
    from onnx import helper

    from helpers.onnx_models import FLOAT, INT64, model, port, save

    path = save(
        model(
            [
                helper.make_node("Reshape", ["x", "shape"], ["r"]),
                helper.make_node("Relu", ["r"], ["y"]),
            ],
            [port("x", FLOAT, ["n"])],
            [port("y", FLOAT, [3, 4])],
            [helper.make_tensor("shape", INT64, [2], [3, 4])],
        ),
        tmp_path / "model.onnx",
    )
    with opened(path, num_slots=1) as rig:
        right, wrong = np.ones(12, np.float32), np.ones(13, np.float32)
        assert rig.ask(right).tolist() == np.ones((3, 4)).tolist()
        with pytest.raises(EngineError, match="ONNX Runtime failed"):
            rig.ask(wrong)
        assert rig.ask(right).tolist() == np.ones((3, 4)).tolist()


def test_what_a_gpu_cannot_be_bound_to_is_refused_at_load(tmp_path: Path) -> None:
    """Outputs of a length that only the run can tell: one sentence, and what to do."""
    from headrace.device.cudart import CudartDevice
    from headrace.engines.ort import OrtEngine
    from helpers import onnx_models

    path = onnx_models.save(onnx_models.places(), tmp_path / "model.onnx")
    device = CudartDevice.open(0)
    try:
        with pytest.raises(ConfigError, match="not served on a GPU; serve it on the CPU"):
            OrtEngine(path, device)
    finally:
        device.close()


def test_operators_that_fall_back_to_the_cpu_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They cost a wait each; such a model gets no graph, and its answers are right all the same."""
    from onnx import helper

    from helpers.onnx_models import FLOAT, model, port, save

    path = save(
        model(
            [helper.make_node("Det", ["x"], ["d"]), helper.make_node("Relu", ["d"], ["y"])],
            [port("x", FLOAT, ["n", 2, 2])],
            [port("y", FLOAT, ["n"])],
        ),
        tmp_path / "model.onnx",
    )
    with caplog.at_level(logging.WARNING), opened(path, num_slots=1, has_graphs=True) as rig:
        for turn in range(8):
            x = np.array([[[2, 1], [1, turn]]], np.float32)
            assert rig.ask(x).tolist() == [max(2.0 * turn - 1, 0.0)]
        assert rig.tally.num_captured == 0
    assert "Det (1)" in caplog.text


def test_inputs_that_are_read_on_the_cpu_are_read_anew_each_time(tmp_path: Path) -> None:
    """Clip runs on the GPU, but takes its bounds on the CPU: never those of an earlier request."""
    from onnx import helper

    from helpers.onnx_models import FLOAT, model, port, save

    path = save(
        model(
            [helper.make_node("Clip", ["x", "low", "high"], ["y"])],
            [port("x", FLOAT, ["n"]), port("low", FLOAT, []), port("high", FLOAT, [])],
            [port("y", FLOAT, ["n"])],
        ),
        tmp_path / "model.onnx",
    )
    with opened(path, num_slots=2, has_graphs=True) as rig:
        x = np.arange(-50, 50).astype(np.float32)
        bounds = [(np.float32(-turn), np.float32(turn + 1)) for turn in range(40)]
        requests = [rig.call(x, np.array(low), np.array(high)) for low, high in bounds]
        rig.run()
        for (low, high), request in zip(bounds, requests, strict=True):
            assert rig.answer(request).tolist() == np.clip(x, low, high).tolist()


def test_many_inputs_of_one_operator_are_replayed_rightly(tmp_path: Path) -> None:
    """Concat of many keeps a table of addresses in host memory, which a graph must not lose."""
    from onnx import helper

    from helpers.onnx_models import FLOAT, model, number, port, save

    names = [f"part{index}" for index in range(80)]
    nodes = [
        node
        for index, name in enumerate(names)
        for node in (
            number(f"c{index}", float(index)),
            helper.make_node("Add", ["x", f"c{index}"], [name]),
        )
    ]
    nodes.append(helper.make_node("Concat", names, ["y"], axis=1))
    path = save(
        model(nodes, [port("x", FLOAT, ["n", 3])], [port("y", FLOAT, ["n", 240])]),
        tmp_path / "model.onnx",
    )
    with opened(path, num_slots=2, has_graphs=True) as rig:
        samples = [np.full((rows, 3), seed, np.float32) for seed, rows in enumerate((1, 2, 1, 3))]
        for turn in range(40):
            x = samples[turn % 4]
            wanted = np.concatenate([x + np.float32(index) for index in range(80)], axis=1)
            assert rig.ask(x).tolist() == wanted.tolist()


@pytest.mark.parametrize("name", ["mlp", "resnet50_fp16_u8"])
def test_batches_are_right(repository: Path, name: str) -> None:
    """Mixed rows, gathered by the CPU (mlp) and by a copy for each (images of 150 KB)."""
    from load.models import CATALOGUE

    path = path_of(repository, name)
    inputs = [CATALOGUE[name].sample(1 + seed % 3, seed=seed) for seed in range(12)]
    with opened(path) as rig:
        rig.batch(8)
        requests = [rig.call(x) for x in inputs]
        rig.run()
        for request, x in zip(requests, inputs, strict=True):
            assert is_near(rig.answer(request), on_cpu(path, x))
        pinned = [lane.inputs.size_bytes for slot in rig.slots for lane in slot.lanes]
        assert any(pinned) is (name == "mlp")


def test_padded_batches_run_as_graphs(repository: Path) -> None:
    """Batches of up to 8 rows replay the graph of 8, and every answer is its own."""
    from load.models import CATALOGUE

    path = path_of(repository, "mlp")
    inputs = [CATALOGUE["mlp"].sample(1 + seed % 3, seed=seed) for seed in range(30)]
    with opened(path, has_graphs=True) as rig:
        rig.batch(8, padded_to=dict.fromkeys(range(1, 9), 8))
        assert rig.warm(inputs[0]) == 4
        rig.tally.restart()
        requests = [rig.call(x) for x in inputs]
        rig.run()
        for request, x in zip(requests, inputs, strict=True):
            assert is_near(rig.answer(request), on_cpu(path, x))
        assert rig.tally.num_hits > 0
        assert sum(rig.tally.num_misses.values()) == 0
