"""Loads, reloads and unloads of real models: in order, whole or not at all, and left no traces."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest

from headrace.control import model_control as model_control_module
from headrace.control.uploads import UploadBounds
from headrace.engines import ort_session
from headrace.errors import (
    ConfigError,
    OverloadedError,
    RequestError,
    UnavailableError,
    UnsupportedError,
)
from headrace.slots.state import SlotState
from helpers import onnx_models
from helpers.control_rig import ControlRig

ALL = "version_policy { all {} }"
WAIT_S = 10.0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    rig = ControlRig(tmp_path)
    yield rig
    rig.close()


def upload(value: float) -> dict[str, bytes]:
    return {"file:1/model.onnx": onnx_models.adds(value).SerializeToString()}


@pytest.mark.parametrize(
    ("version", "is_warned"),
    [("1.20.1", True), ("1.30.0", True), ("1.31.0", False), ("1.31.1", False), ("2.0.0", False)],
)
def test_a_runtime_that_keeps_all_others_waiting_is_named_once(
    rig: ControlRig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: str,
    is_warned: bool,
) -> None:
    """Where a model has been loaded beside those that are served."""
    monkeypatch.setattr(onnxruntime, "__version__", version)
    ort_session.warn_of_waiting.cache_clear()
    for name in "ab":
        rig.put(name, 1, 1)
        rig.load(name)
    assert caplog.text.count("onnxruntime before 1.31 lets no other thread run") == is_warned


def test_a_model_is_loaded_reloaded_and_unloaded(rig: ControlRig) -> None:
    """What is asked gets the answer of what was loaded last."""
    rig.put("m", 1, 1)
    assert "is not found" in str(rig.ask("m"))
    rig.load("m")
    assert rig.ask("m") == 1
    rig.put("m", 1, 2)
    assert rig.ask("m") == 1
    rig.load("m")
    assert rig.ask("m") == 2
    rig.unload("m")
    assert "has no available versions" in str(rig.ask("m"))
    assert rig.watch.slots == set()
    rig.load("m")
    assert rig.ask("m") == 2


def test_what_has_not_changed_is_not_loaded_again(rig: ControlRig) -> None:
    """Of several versions those that have changed are, and the others serve on as they are."""
    rig.put("m", 1, 1, ALL)
    rig.put("m", 2, 2)
    rig.load("m")
    rig.load("m")
    assert rig.num_loads == 2
    kept = rig.catalog.find("m", "1")
    rig.put("m", 2, 20)
    rig.put("m", 3, 3)
    rig.load("m")
    assert rig.num_loads == 4
    assert rig.catalog.find("m", "1") is kept
    assert [rig.ask("m", version) for version in ("1", "2", "3", "")] == [1, 20, 3, 3]
    rig.put("m", 1, 1, "version_policy { all {} } max_batch_size: 2")
    rig.load("m")
    assert rig.num_loads == 7


def test_versions_go_where_the_policy_takes_them_no_more(rig: ControlRig) -> None:
    """The newest alone, when there is a newer one."""
    rig.put("m", 1, 1)
    rig.load("m")
    rig.put("m", 2, 2)
    rig.load("m")
    assert sorted(rig.catalog.versions("m")) == [2]
    assert "there is 2" in str(rig.ask("m", "1"))


def test_a_model_whose_slots_have_failed_is_loaded_again(rig: ControlRig) -> None:
    """Though nothing has changed on disk: that is how an operator mends it."""
    rig.put("m", 1, 1)
    rig.load("m")
    for slot in rig.catalog.find("m", "").line.pool.slots:
        slot.move_to(SlotState.FAULTED)
    rig.load("m")
    assert rig.ask("m") == 1


def test_what_fails_changes_nothing(rig: ControlRig) -> None:
    """The old versions serve on, ready as before; the index tells of the new one."""
    rig.put("m", 1, 1, ALL)
    rig.load("m")
    rig.put("m", 1, 10)
    rig.put("m", 2, 2).write_bytes(b"half of a mod")
    with pytest.raises(RequestError, match=r"load failed for model 'm': version 2: .*model\.onnx"):
        rig.load("m")
    assert rig.ask("m") == 1
    assert rig.catalog.is_ready
    states = {entry.version: (entry.state, entry.reason) for entry in rig.catalog.index()}
    assert states["1"] == ("READY", "")
    assert states["2"][0] == "UNAVAILABLE"
    assert "is not at ready state" in str(rig.ask("m", "2"))
    rig.put("m", 2, 2)
    rig.load("m")
    assert [rig.ask("m", "1"), rig.ask("m", "2")] == [10, 2]


def test_a_first_load_that_fails_is_told_and_forgotten_by_an_unload(rig: ControlRig) -> None:
    """A strict server is not ready meanwhile, as Triton's."""
    rig.put("m", 1, 1).write_bytes(b"")
    with pytest.raises(RequestError, match="load failed"):
        rig.load("m")
    assert not rig.catalog.is_ready
    assert rig.metrics._models == {}
    rig.unload("m")
    assert rig.catalog.is_ready is True


def test_a_model_that_is_nowhere(rig: ControlRig) -> None:
    """An error in Triton's words; to unload it is none."""
    with pytest.raises(ConfigError, match="failed to load 'm', failed to poll from model rep"):
        rig.load("m")
    rig.unload("m")
    assert rig.catalog.index() == []


def test_a_configuration_of_the_client_lasts_until_the_next_load(rig: ControlRig) -> None:
    """Which takes the written one again, though no file has changed."""
    rig.put("m", 1, 1, "max_batch_size: 4")
    rig.load("m")
    rig.load("m", json.dumps({"max_batch_size": 2}))
    assert rig.catalog.find("m", "").config.max_batch_size == 2
    rig.load("m")
    assert rig.catalog.find("m", "").config.max_batch_size == 4
    with pytest.raises(RequestError, match="load failed for model 'm': config override: name"):
        rig.load("m", '{"name": "other"}')
    with pytest.raises(RequestError, match="config override: input"):
        rig.load("m", '{"input": [{"name": "no", "data_type": "TYPE_FP32", "dims": [4]}]}')
    assert rig.catalog.find("m", "").config.max_batch_size == 4


def test_files_of_a_client_serve_and_go_with_their_model(rig: ControlRig) -> None:
    """Replaced by others, by the repository's, by an unload."""
    rig.load("m", "{}", upload(1))
    assert rig.ask("m") == 1
    rig.load("m", '{"max_batch_size": 2}', upload(2))
    assert rig.ask("m") == 2
    root = rig.uploads._root
    assert root is not None
    assert len(list(root.path.iterdir())) == 1
    rig.put("m", 1, 3)
    rig.load("m")
    assert rig.ask("m") == 3
    assert list(root.path.iterdir()) == []
    rig.load("m", "{}", upload(4))
    rig.unload("m")
    assert list(root.path.iterdir()) == []


@pytest.mark.parametrize(
    ("config", "files", "reason"),
    [
        ("{}", {"file:1/model.onnx": b"junk"}, r"version 1: m/1/model\.onnx: ONNX Runtime cannot"),
        ("{}", {"file:model.onnx": b""}, "no version to serve"),
        ("{", upload(1), "config override: is no model configuration"),
        ('{"platform": "tensorrt_plan"}', {"file:1/model.plan": b"ptrt"}, "only from the operator"),
        ("{}", {"file:1/../x": b""}, "cannot be used with files"),
        ('{"default_model_filename": "../m.onnx"}', upload(1), "is not a plain file name"),
    ],
)
def test_files_of_a_client_that_are_no_model_leave_nothing(
    rig: ControlRig, config: str, files: dict[str, bytes], reason: str
) -> None:
    """The text does not tell where they were."""
    with pytest.raises(RequestError, match=reason) as caught:
        rig.load("m", config, files)
    assert "headrace-models" not in str(caught.value)
    root = rig.uploads._root
    assert root is None or list(root.path.iterdir()) == []
    assert not any("headrace-models" in entry.reason for entry in rig.catalog.index())


def test_files_are_refused_where_the_operator_does_not_take_them(tmp_path: Path) -> None:
    """Before anything waits or is written."""
    rig = ControlRig(tmp_path, bounds=UploadBounds())
    with pytest.raises(UnsupportedError, match="--allow-model-uploads"):
        rig.load("m", "{}", upload(1))
    rig.close()


def test_loads_never_overlap(rig: ControlRig) -> None:
    """Of one model or of several: each finds what the one before left."""
    rig.put("m", 1, 1)
    rig.put("n", 1, 2)
    running, most = 0, 0
    load = rig.control.load_now

    def watched(*arguments: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        load(*arguments)  # type: ignore[arg-type]
        running -= 1

    rig.control.load_now = watched  # type: ignore[method-assign, assignment]

    async def both() -> None:
        await asyncio.gather(*(rig.control.load(name) for name in ("m", "n", "m", "m", "n")))

    rig.run(both())
    assert (most, rig.num_loads) == (1, 2)
    assert [rig.ask("m"), rig.ask("n")] == [1, 2]


def test_a_caller_who_has_left_is_passed_over(rig: ControlRig) -> None:
    """What has begun is finished, what waits is not begun; what was bounded has room again."""
    rig.put("m", 1, 1)
    rig.put("n", 1, 2)
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go_on.wait(WAIT_S)

    rig.on_load = hold

    async def leave() -> None:
        first = asyncio.create_task(rig.control.load("m"))
        await asyncio.to_thread(begun.wait, WAIT_S)
        second = asyncio.create_task(rig.control.load("n"))
        await asyncio.sleep(0)
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        go_on.set()
        await rig.control.unload("other")  # its turn comes when the first is done

    rig.run(leave())
    assert rig.ask("m") == 1
    assert "is not found" in str(rig.ask("n"))


def test_only_so_many_wait(rig: ControlRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may carry files."""
    monkeypatch.setattr(model_control_module, "MAX_WAITING", 2)
    rig.put("m", 1, 1)

    async def three() -> list[object]:
        loads = (rig.control.load("m") for _ in range(3))
        return await asyncio.gather(*loads, return_exceptions=True)

    ends = rig.run(three())
    assert ends[:2] == [None, None]
    assert isinstance(ends[2], OverloadedError)


def test_a_server_that_is_told_to_stop_loads_nothing_more(rig: ControlRig) -> None:
    """Neither what comes, nor what waits, nor the versions that are left of what has begun."""
    rig.put("m", 1, 1, ALL)
    rig.put("m", 2, 2)

    def stop() -> None:
        rig.is_leaving = True

    rig.on_load = stop
    with pytest.raises(UnavailableError, match="shutting down"):
        rig.load("m")
    assert rig.num_loads == 1
    assert list(rig.catalog.models()) == []
    with pytest.raises(UnavailableError, match="shutting down"):
        rig.load("m")
    assert rig.num_loads == 1


def test_the_end_waits_for_a_load_and_not_for_ever(rig: ControlRig) -> None:
    """An engine cannot be stopped: whoever asked is told that it is still at work."""
    rig.put("m", 1, 1)
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go_on.wait(WAIT_S)

    rig.on_load = hold

    async def end() -> tuple[bool, bool]:
        load = asyncio.create_task(rig.control.load("m"))
        await asyncio.to_thread(begun.wait, WAIT_S)
        is_over = await rig.control.close(0.01)
        go_on.set()
        await load
        return is_over, await rig.control.close(WAIT_S)

    assert rig.run(end()) == (False, True)


def test_a_load_that_does_not_fit_is_refused_before_it_is_begun(
    rig: ControlRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the figures; what serves serves on."""
    rig.put("m", 1, 1)
    rig.load("m")
    path = rig.put("m", 1, 2)
    size = path.stat().st_size
    monkeypatch.setattr(rig.device, "memory_info", lambda: (size - 1, 1000))
    text = rf"m version 1 needs about {size} bytes of memory, as its files have, beside what runs; "
    with pytest.raises(OverloadedError, match=text + rf"{size - 1} of 1000 are free"):
        rig.load("m")
    assert (rig.ask("m"), rig.num_loads) == (1, 1)
    monkeypatch.undo()
    rig.load("m")
    assert rig.ask("m") == 2


def test_the_names_of_all_that_could_be_loaded(rig: ControlRig) -> None:
    """Loaded or not."""
    rig.put("b", 1, 1)
    rig.put("a", 1, 1)
    assert rig.run(rig.control.names()) == ["a", "b"]
