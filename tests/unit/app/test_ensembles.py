"""Ensembles of real models, from the repository on: the load order, labels, and what is told."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from headrace.device.host import HostDevice
from headrace.engines.ensemble_plan import load_order
from headrace.engines.repository import find_models
from helpers.control_rig import write_chain
from helpers.ensemble_served import EnsembleServed, chain_answers
from helpers.onnx_models import adds, save


def test_tensors_go_from_step_to_step(tmp_path: Path) -> None:
    """On the CPU, as `tests/gpu` has it on a GPU."""
    device = HostDevice()
    for x, answer in chain_answers(tmp_path, device, 20):
        assert np.array_equal(answer, x + 111)
    device.close()


def test_models_are_loaded_before_what_is_made_of_them(tmp_path: Path) -> None:
    """Whatever their names; a circle is no trap."""
    for name in ("m", "z"):
        save(adds(1), tmp_path / name / "1/model.onnx")
    write_chain(tmp_path, "a", "b", "z")
    write_chain(tmp_path, "b", "m")
    write_chain(tmp_path, "c", "d")
    write_chain(tmp_path, "d", "c")
    found = find_models([tmp_path])
    assert [source.name for source in load_order(found.models)] == list("mbzadc")


def test_what_has_no_effect_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fields of a configuration that an ensemble does not act on."""
    save(adds(1), tmp_path / "m/1/model.onnx")
    path = write_chain(tmp_path, "e", "m")
    more = """response_cache { enable: true } model_warmup { name: "w" batch_size: 1
        inputs { key: "x" value { data_type: TYPE_FP32 dims: 4 zero_data: true } } }"""
    path.write_text(path.read_text() + more)
    device = HostDevice()
    with caplog.at_level(logging.WARNING):
        rig = EnsembleServed(tmp_path, device)
    told = " ".join(record.message for record in caplog.records)
    assert "e: model_warmup is not run" in told
    assert "e: response_cache" in told
    rig.close()
    device.close()
