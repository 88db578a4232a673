"""Operators that draw random numbers are found in the file as ONNX's own library writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from headrace.engines.onnx_random import OP_TYPE, OVERLAP, PIECE, RANDOM, random_operators
from helpers.onnx_models import FLOAT, adds, model, port, save


@pytest.mark.parametrize("name", RANDOM)
def test_each_is_found_and_no_other(name: str, tmp_path: Path) -> None:
    """A name that another begins with is not taken for it."""
    node = helper.make_node(name, ["x"] if name in TAKES_INPUT else [], ["r"], **MUST.get(name, {}))
    graph = helper.make_graph([node], "g", [port("x", FLOAT, [2, 4])], [port("r", FLOAT, None)])
    path = save(helper.make_model(graph), tmp_path / "model.onnx")
    assert random_operators(path) == {name}


def test_they_are_found_below_a_condition(tmp_path: Path) -> None:
    """A subgraph is an attribute of its node."""
    branches: dict[str, Any] = {
        f"{which}_branch": helper.make_graph(
            [helper.make_node("RandomUniform", [], [which], shape=[4])],
            which,
            [],
            [port(which, FLOAT, [4])],
        )
        for which in ("then", "else")
    }
    node = helper.make_node("If", ["c"], ["y"], **branches)
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    path = save(model([node], inputs, [port("y", FLOAT, [4])]), tmp_path / "model.onnx")
    assert random_operators(path) == {"RandomUniform"}


def test_a_name_is_no_operator(tmp_path: Path) -> None:
    """Tensors and nodes may be called what they like."""
    assert random_operators(save(adds(1), tmp_path / "a.onnx")) == set()
    node = helper.make_node("Neg", ["Bernoulli"], ["RandomNormal"], name="Multinomial")
    ports = [port(name, FLOAT, ["n"]) for name in ("Bernoulli", "RandomNormal")]
    path = save(model([node], ports[:1], ports[1:]), tmp_path / "b.onnx")
    assert random_operators(path) == set()


@pytest.mark.parametrize("name", RANDOM)
def test_one_that_lies_across_two_pieces_is_found(name: str, tmp_path: Path) -> None:
    """The file is searched piece by piece; a part of one is not taken for another one."""
    operator = bytes([OP_TYPE, len(name)]) + name.encode()
    path = tmp_path / "model.onnx"
    for before in range(PIECE - len(operator), PIECE + OVERLAP + 1):
        for behind in (b"", bytes(100)):
            path.write_bytes(bytes(before) + operator + behind)
            assert random_operators(path) == {name}


TAKES_INPUT = {"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
MUST: dict[str, Any] = {"RandomNormal": {"shape": [2, 4]}, "RandomUniform": {"shape": [2, 4]}}
