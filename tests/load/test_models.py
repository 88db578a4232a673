"""The load models are what they are called, and ONNX Runtime runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from load.graphs import Net
from load.models import CATALOGUE, SMALL, expected, model_path, session, write_repository


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repository(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("name", SMALL)
def test_small_models_run(repository: Path, name: str) -> None:
    """Each file loads in ONNX Runtime with a free batch dimension."""
    inputs = session(model_path(repository, name)).get_inputs()
    assert [port.shape[0] for port in inputs] == ["batch"] * len(inputs)


@pytest.mark.parametrize("name", ["mlp", "mlp_u8", "conv", "conv_u8", "slow"])
def test_answers_differ_by_row(repository: Path, name: str) -> None:
    """A network's answer is finite and depends on its input, so a swapped row cannot hide."""
    y = expected(repository, name, CATALOGUE[name].sample(3))
    assert np.isfinite(y).all()
    assert len({row.tobytes() for row in y}) == 3


@pytest.mark.parametrize("name", ["resnet50_fp32_u8", "resnet50_fp16"])
def test_resnet50_has_its_size_and_stays_in_range(tmp_path: Path, name: str) -> None:
    """25.6 million weights, finite answers also in half precision."""
    write_repository(tmp_path, [name])
    weights = onnx.load(model_path(tmp_path, name)).graph.initializer
    assert sum(int(np.prod(one.dims)) for one in weights) == pytest.approx(25.5e6, rel=0.01)
    assert np.isfinite(expected(tmp_path, name, CATALOGUE[name].sample())).all()


def test_normalisation_in_the_graph_is_the_usual_one(tmp_path: Path) -> None:
    """(x / 255 - mean) / deviation, by channel, as numpy computes it."""
    net = Net("normalise")
    mean, deviation = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    model = net.model(
        net.pooled(net.normalise(mean, deviation)), TensorProto.UINT8, (3, 4, 4), num_out=3
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 4), np.uint8)
    wanted = ((x / 255).mean((2, 3)) - mean) / deviation
    np.testing.assert_allclose(session(path).run(None, {"x": x})[0], wanted, rtol=1e-5, atol=1e-6)


def test_weights_are_the_same_every_time(tmp_path: Path) -> None:
    """Two builds of one model are equal byte for byte."""
    first, second = (write_repository(tmp_path / part, ["mlp"]) for part in "ab")
    assert model_path(first, "mlp").read_bytes() == model_path(second, "mlp").read_bytes()
