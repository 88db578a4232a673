"""Ensembles of real models, from the repository on: the load order, labels, and what is told."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from headrace.catalog import Absent
from headrace.device.host import HostDevice
from headrace.engines.ensemble_plan import load_order
from headrace.engines.repository import find_models
from headrace.slots.pool import SlotPool
from helpers.control_rig import write_chain
from helpers.ensemble_rig import EnsembleRig, ensemble_text, step_text
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


@pytest.mark.parametrize("twins", [("e", "e"), ("e", "f")], ids=["one twice", "two"])
def test_a_look_asks_each_model_a_few_times(
    twins: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many paths lead to it: here there are 2^12."""
    depth = 12
    asked: list[SlotPool] = []
    is_ready = vars(SlotPool)["is_ready"].fget

    def counted(pool: SlotPool) -> bool:
        asked.append(pool)
        return bool(is_ready(pool))

    monkeypatch.setattr(SlotPool, "is_ready", property(counted))
    rig = EnsembleRig()
    leaf = rig.model("m")
    rig.add(leaf)
    below = ("m", "m")
    for level in range(depth):
        here = [f"{name}{level}" for name in twins]
        for name in dict.fromkeys(here):
            first, second = below if level == 0 else (f"{name}{level - 1}" for name in twins)
            steps = [
                step_text(first, {"x0": "x0"}, {"y0": "t"}),
                step_text(second, {"x0": "t"}, {"y0": "y0"}),
            ]
            served = rig.ensemble(ensemble_text(["x0"], ["y0"], steps), name=name)
    for _ in range(2):  # as it is found at first, and as it is known
        asked.clear()
        assert served.is_ready
        assert 0 < len(asked) <= 10 * depth
        rig.catalog.mark("other", 1, Absent("UNAVAILABLE", "", is_fault=False))
    leaf.line.pool.close()
    asked.clear()
    assert "not at ready state" in served.why_unready
    assert 0 < len(asked) <= 10 * depth
    rig.close()


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
