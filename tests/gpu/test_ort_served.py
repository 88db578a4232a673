"""ONNX models loaded on a GPU as a server loads them: CUDA graphs without a word about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from helpers.core_served import CoreServed

pytestmark = pytest.mark.gpu

TOLERANCE = 0.02  # of the largest output: TF32 and FP16 have ten bits of mantissa
NUM_LANES = 2


@pytest.fixture(autouse=True)
def _needs_what_makes_its_models(needs_cuda_provider: None) -> None:
    pytest.importorskip("ml_dtypes", reason="ml_dtypes, which makes the models, is not installed")


@contextmanager
def served(folder: Path, name: str, config: str) -> Iterator[CoreServed]:
    """Serve a model of the catalogue on one slot; in the end nothing may be left."""
    from headrace.device.cudart import CudartDevice
    from helpers.core_served import CoreServed
    from load.models import write_repository

    write_repository(folder, [name])
    (folder / name / "config.pbtxt").write_text(f"instance_group {{ count: 1 }} {config}")
    device = CudartDevice.open(0)
    rig = CoreServed(folder, device)
    try:
        rig.serve()
        yield rig
    finally:
        rig.close()
        left_open = device.ledger.names()[1:]  # the first is the stream of check()
        device.close()
    assert left_open == []


def is_near(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> bool:
    """Equal within the tolerance."""
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    return bool(np.abs(got - wanted).max() <= TOLERANCE * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["mlp", "resnet50_fp16_u8"])
def test_every_batch_is_a_graph_from_the_first_request_on(name: str, tmp_path: Path) -> None:
    """Of each number of rows, padded or not, and the answers are the CPU provider's."""
    from load.models import CATALOGUE, expected

    with served(tmp_path, name, "max_batch_size: 8") as rig:
        graphs = rig.model.graphs
        assert graphs is not None
        assert graphs.num_captured == NUM_LANES * 4
        for rows in range(1, 9):
            x = CATALOGUE[name].sample(rows, seed=rows)
            answer = rig.ask(x)
            assert answer.shape[0] == rows
            assert is_near(answer, expected(tmp_path, name, x))
        assert (graphs.num_hits, rig.misses) == (8, {})
        assert rig.model.config.optimization.cuda.graphs


@pytest.mark.parametrize("name", ["mlp", "resnet50_fp16_u8"])
def test_what_waits_runs_together(name: str, tmp_path: Path) -> None:
    """Each batch is a graph, each answer its own, and the table of the load is kept up to date."""
    from load.models import CATALOGUE, expected

    with served(tmp_path, name, "max_batch_size: 8 dynamic_batching { }") as rig:
        capacity, graphs = rig.model.line.capacity, rig.model.graphs
        before = dict(capacity.table())
        assert list(before) == [1, 2, 4, 8]
        inputs = [CATALOGUE[name].sample(1 + seed % 3, seed=seed) for seed in range(40)]
        asked = [rig.submit(x) for x in inputs]
        rig.run()
        for x, each in zip(inputs, asked, strict=True):
            assert is_near(each.answer, expected(tmp_path, name, x))
        assert graphs is not None
        assert (graphs.num_hits < len(inputs) / 2, rig.misses) == (True, {})
        assert dict(capacity.table())[8] != before[8]


def test_a_model_can_do_without(tmp_path: Path) -> None:
    """Its configuration says so."""
    from load.models import CATALOGUE, expected

    off = "max_batch_size: 8 optimization { cuda { graphs: false } }"
    with served(tmp_path, "mlp", off) as rig:
        assert rig.model.graphs is None
        x = CATALOGUE["mlp"].sample(3)
        assert is_near(rig.ask(x), expected(tmp_path, "mlp", x))


def test_random_numbers_are_drawn_anew_in_each_run(tmp_path: Path) -> None:
    """A graph would repeat those of its capture for ever."""
    from onnx import helper

    from headrace.device.cudart import CudartDevice
    from helpers.core_served import CoreServed
    from helpers.onnx_models import FLOAT, model, port, save

    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["r"], high=1.0, low=0.0),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    ports = [port(name, FLOAT, ["n", 64]) for name in "xy"]
    save(model(nodes, ports[:1], ports[1:]), tmp_path / "m/1/model.onnx")
    device = CudartDevice.open(0)
    rig = CoreServed(tmp_path, device)
    try:
        assert rig.serve().graphs is None
        answers = [rig.ask(np.zeros((rows, 64), np.float32))[:1] for rows in (1, 3, 4) * 8]
    finally:
        rig.close()
        device.close()
    assert len({answer.tobytes() for answer in answers}) == len(answers)
