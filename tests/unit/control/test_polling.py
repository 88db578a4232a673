"""The repositories as they change on disk, looked at by hand."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import onnx_models
from helpers.control_rig import ControlRig

ALL = "version_policy { all {} }"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    rig = ControlRig(tmp_path / "models")
    rig.folder.mkdir()
    yield rig
    rig.folder.mkdir(exist_ok=True)
    rig.close()


def look(rig: ControlRig) -> None:
    rig.run(rig.control.run(rig.poll.look))


def failures(rig: ControlRig) -> list[tuple[str, str]]:
    return [(e.name, e.version) for e in rig.catalog.index() if e.reason not in {"", "unloaded"}]


def test_what_is_new_is_loaded_what_changed_reloaded_what_went_unloaded(rig: ControlRig) -> None:
    """And nothing else is touched."""
    rig.put("stays", 1, 1)
    rig.put("changes", 1, 2)
    rig.put("goes", 1, 3)
    look(rig)
    assert [rig.ask(name) for name in ("stays", "changes", "goes")] == [1, 2, 3]
    stays = rig.catalog.find("stays", "")
    rig.put("changes", 1, 20)
    shutil.rmtree(rig.folder / "goes")
    rig.put("comes", 1, 4)
    look(rig)
    assert [rig.ask(name) for name in ("stays", "changes", "comes")] == [1, 20, 4]
    assert "has no available versions" in str(rig.ask("goes"))
    assert rig.catalog.find("stays", "") is stays
    assert rig.num_loads == 5
    look(rig)
    assert rig.num_loads == 5


def test_a_version_is_put_in_beside_the_others(rig: ControlRig) -> None:
    """Only it is loaded."""
    rig.put("m", 1, 1, ALL)
    look(rig)
    rig.put("m", 2, 2)
    look(rig)
    assert (rig.num_loads, rig.ask("m", "1"), rig.ask("m")) == (2, 1, 2)


def test_a_model_that_is_being_copied_fails_softly_and_is_tried_again(rig: ControlRig) -> None:
    """At each step of a copy; the old version serves on, and one look after its end the new."""
    rig.put("m", 1, 1)
    look(rig)
    whole = onnx_models.adds(2).SerializeToString()
    folder = rig.folder / "m/2"
    folder.mkdir()
    for part in (b"", whole[: len(whole) // 2], whole[:-1]):
        (folder / "model.onnx").write_bytes(part)
        look(rig)
        assert (rig.ask("m"), rig.catalog.is_ready) == (1, True)
    assert failures(rig) == [("m", "2")]
    tried = rig.num_loads
    look(rig)
    assert rig.num_loads == tried  # nothing has changed since
    (folder / "model.onnx").write_bytes(whole)
    look(rig)
    assert rig.ask("m") == 2
    assert failures(rig) == []


def test_a_configuration_that_is_wrong_is_told_and_mended(rig: ControlRig) -> None:
    """Without a version that could be blamed."""
    rig.put("m", 1, 1, "max_batch_size: many")
    look(rig)
    assert failures(rig) == [("m", "")]
    assert not rig.catalog.is_ready
    rig.put("m", 1, 1, "max_batch_size: 4")
    look(rig)
    assert (rig.ask("m"), failures(rig), rig.catalog.is_ready) == (1, [], True)
    rig.put("m", 1, 1, "max_batch_size: many")
    look(rig)
    assert (rig.ask("m"), failures(rig), rig.catalog.is_ready) == (1, [("m", "")], True)


def test_a_repository_that_cannot_be_looked_into_unloads_nothing(
    rig: ControlRig, caplog: pytest.LogCaptureFixture
) -> None:
    """A network file system that is away for a moment must not end what serves."""
    rig.put("m", 1, 1)
    look(rig)
    rig.folder.rename(rig.folder.with_name("away"))
    look(rig)
    look(rig)
    assert rig.ask("m") == 1
    assert caplog.text.count("cannot be read") == 1
    rig.folder.with_name("away").rename(rig.folder)
    look(rig)
    assert (rig.ask("m"), rig.num_loads) == (1, 1)


def test_a_name_that_is_there_twice_is_served_by_neither(rig: ControlRig, tmp_path: Path) -> None:
    """Until one of the two goes."""
    rig.put("m", 1, 1)
    look(rig)
    other = tmp_path / "other"
    onnx_models.save(onnx_models.adds(2), other / "m/1/model.onnx")
    rig.shelf._repositories = [rig.folder, other]
    look(rig)
    assert "is not at ready state" in str(rig.ask("m"))
    assert "is there 2 times" in rig.catalog.failures["m", 0]
    look(rig)
    shutil.rmtree(rig.folder / "m")
    look(rig)
    assert rig.ask("m") == 2


def test_what_does_not_fit_is_tried_at_every_look(
    rig: ControlRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory comes back without a change on disk."""
    rig.put("m", 1, 1)
    monkeypatch.setattr(rig.device, "memory_info", lambda: (1, 1000))
    look(rig)
    assert "needs about" in rig.catalog.failures["m", 1]
    monkeypatch.undo()
    look(rig)
    assert rig.ask("m") == 1


def test_looks_go_on_whatever_happens(rig: ControlRig, caplog: pytest.LogCaptureFixture) -> None:
    """A bug is logged, and the next look is taken."""
    rig.put("m", 1, 1)
    places, broken = rig.shelf.places, [ZeroDivisionError("a bug")]

    def breaks_once() -> object:
        if broken:
            raise broken.pop()
        return places()

    rig.shelf.places = breaks_once  # type: ignore[method-assign, assignment]

    async def watch() -> None:
        polling = asyncio.create_task(rig.poll.run_forever(0.001))
        async with asyncio.timeout(10):
            while not rig.catalog.versions("m"):
                await rig.control.run(lambda: None)  # waits for its turn
        polling.cancel()

    rig.run(watch())
    assert "because of a bug" in caplog.text
    assert rig.ask("m") == 1
