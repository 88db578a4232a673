"""Ensembles and their models, loaded, replaced and unloaded: real models, no transport."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import RequestError
from helpers.control_rig import ControlRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    rig = ControlRig(tmp_path)
    yield rig
    rig.close()


def state(rig: ControlRig, name: str) -> tuple[str, str]:
    """State and reason of a model, as the index has them."""
    (entry,) = (each for each in rig.catalog.index() if each.name == name)
    return entry.state, entry.reason


def look(rig: ControlRig) -> None:
    """Look at the repository, as in poll mode."""
    rig.run(rig.control.run(rig.poll.look))
    rig.swap.see_off()


def test_loading_an_ensemble_loads_its_models(rig: ControlRig) -> None:
    """Those that are not served; and they stay when it is unloaded alone."""
    rig.put("one", 1, 1)
    rig.put("ten", 1, 10)
    rig.put_chain("sum", "one", "ten", "ten")
    rig.load("one")
    rig.load("sum")
    assert rig.ask("sum") == 21
    assert rig.num_loads == 3
    rig.unload("sum")
    assert "has no available versions" in str(rig.ask("sum"))
    assert rig.ask("ten") == 10


def test_fields_of_an_ensemble_that_have_no_effect_are_named(
    rig: ControlRig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As those of any model."""
    rig.put("one", 1, 1)
    rig.put_chain("sum", "one")
    (config,) = tmp_path.rglob("sum/config.pbtxt")
    config.write_text(f"{config.read_text()} optimization {{ priority: PRIORITY_MAX }}")
    rig.load("sum")
    assert "sum: optimization.priority is set, but headrace does not honour it yet" in caplog.text


def test_models_of_ensembles_may_be_unloaded_with_them(rig: ControlRig) -> None:
    """But for those that another ensemble is made of."""
    for name, value in (("one", 1), ("ten", 10), ("hundred", 100)):
        rig.put(name, 1, value)
    rig.put_chain("inner", "one", "ten")
    rig.put_chain("outer", "inner", "hundred")
    rig.put_chain("other", "ten")
    rig.load("outer")
    rig.load("other")
    assert rig.ask("outer") == 111
    rig.run(rig.control.unload("outer", with_dependents=True))
    rig.swap.see_off()
    assert {entry.name for entry in rig.catalog.index() if entry.state == "READY"} == {
        "ten",
        "other",
    }
    assert rig.ask("other") == 10


def test_a_model_is_replaced_and_unloaded_under_its_ensemble(rig: ControlRig) -> None:
    """The ensemble follows: what serves now, not ready, ready again."""
    rig.put("one", 1, 1)
    rig.put("ten", 1, 10)
    rig.put_chain("sum", "one", "ten")
    rig.load("sum")
    rig.put("ten", 1, 20)
    rig.load("ten")
    assert rig.ask("sum") == 21
    rig.unload("ten")
    assert "is not at ready state" in str(rig.ask("sum"))
    assert "not at ready state: it depends on 'ten'" in str(rig.ask("sum", "1"))
    assert state(rig, "sum")[0] == "UNAVAILABLE"
    assert "it depends on 'ten'" in state(rig, "sum")[1]
    assert not rig.catalog.is_ready
    rig.load("ten")
    assert rig.ask("sum") == 21
    assert state(rig, "sum") == ("READY", "")


def test_a_model_that_does_not_fit_any_more(rig: ControlRig) -> None:
    """The ensemble says so, and nothing is sent to the model."""
    rig.put("one", 1, 1)
    rig.put_chain("sum", "one")
    rig.load("sum")
    config = """max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: 4 }
        output { name: "y" data_type: TYPE_FP32 dims: 4 }"""
    rig.put("one", 1, 1, config)
    rig.load("one")
    assert "is not at ready state" in str(rig.ask("sum"))
    assert "model 'one' takes 2 rows at most" in state(rig, "sum")[1]


def test_a_load_that_fails_changes_nothing(rig: ControlRig) -> None:
    """For want of a model; because it does not fit; because it goes round in a circle."""
    rig.put("one", 1, 1)
    rig.put_chain("sum", "one")
    rig.load("sum")
    rig.put_chain("sum", "one", "missing")
    with pytest.raises(RequestError, match="load failed for model 'sum'.*depends on 'missing'"):
        rig.load("sum")
    assert rig.ask("sum") == 1
    path = rig.put_chain("wrong", "one")
    path.write_text(path.read_text().replace("dims: 4", "dims: 5"))
    with pytest.raises(RequestError, match=r"\[-1, 5\] in the ensemble, but \[-1, 4\]"):
        rig.load("wrong")
    rig.put_chain("a", "b")
    rig.put_chain("b", "a")
    with pytest.raises(RequestError, match="load failed for model 'a'"):
        rig.load("a")
    for name in ("wrong", "a"):
        assert not rig.catalog.versions(name)


def test_a_configuration_of_the_client_s(rig: ControlRig) -> None:
    """In place of the written one, as for other models."""
    rig.put("one", 1, 1)
    rig.put_chain("sum", "one", "one")
    rig.load("sum")
    config = """{"platform": "ensemble", "max_batch_size": 4,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}],
        "ensemble_scheduling": {"step": [{"model_name": "one", "model_version": -1,
            "input_map": {"x": "x"}, "output_map": {"y": "y"}}]}}"""
    rig.load("sum", config)
    assert rig.ask("sum") == 1


def test_polling_finds_a_model_later_than_its_ensemble(rig: ControlRig) -> None:
    """Until then the ensemble is there, and not ready; when a model goes, again."""
    rig.put("one", 1, 1)
    rig.put_chain("a_sum", "one", "ten")
    look(rig)
    assert state(rig, "a_sum")[0] == "UNAVAILABLE"
    rig.put("ten", 1, 10)
    look(rig)
    assert rig.ask("a_sum") == 11
    shutil.rmtree(rig.folder / "one")
    look(rig)
    assert "it depends on 'one'" in state(rig, "a_sum")[1]
