"""What is loaded before the server serves, by mode."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from headrace.catalog import ModelCatalog
from headrace.config import ServerConfig
from headrace.control.keeper import Core, ModelKeeper
from headrace.device.host import HostDevice
from headrace.errors import ConfigError
from headrace.link.local import LocalLink
from headrace.metrics import Metrics
from headrace.scheduling.admission import Admission
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import Poller
from helpers import onnx_models
from helpers.swap_rig import Watch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models a and b, and one that is none."""
    for name in ("a", "b"):
        onnx_models.save(onnx_models.adds(1), tmp_path / f"{name}/1/model.onnx")
    (tmp_path / "bad/1").mkdir(parents=True)
    (tmp_path / "bad/1/model.onnx").write_bytes(b"x")
    return tmp_path


class Started:
    """A keeper that has loaded what it should."""

    def __init__(self, **settings: Any) -> None:
        self.device = HostDevice()
        self.blocks = BlockPool(self.device, 1 << 24)
        self.catalog = ModelCatalog()
        admission = Admission(self.blocks, max_waiting_bytes=0)
        scheduler = Scheduler(self.blocks, Poller(), admission, clock=time.monotonic)
        link = LocalLink(scheduler)
        core = Core(self.device, self.blocks, Metrics(), self.catalog, link, Watch())
        config = ServerConfig(**settings)

        async def run() -> None:
            keeper = ModelKeeper(config, core, is_leaving=bool, clock=time.monotonic)
            try:
                keeper.load_at_start()
            finally:
                assert await keeper.close(10.0)

        try:
            asyncio.run(run())
        finally:
            self.names = [model.spec.name for model in self.catalog.models()]
            self.catalog.close()
            self.blocks.close()
        assert self.device._ledger.names() == []


@pytest.fixture
def settings(folder: Path) -> dict[str, Any]:
    return {"model_repository": (folder,), "exit_on_error": False}


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ["a", "b"]),
        ({"model_control_mode": "poll"}, ["a", "b"]),
        ({"model_control_mode": "explicit"}, []),
        ({"model_control_mode": "explicit", "load_model": ("b", "b")}, ["b"]),
        ({"model_control_mode": "explicit", "load_model": ("*",)}, ["a", "b"]),
    ],
)
def test_what_each_mode_loads(
    settings: dict[str, Any], more: dict[str, Any], names: list[str]
) -> None:
    """Everything, or what is named."""
    assert Started(**settings, **more).names == names


def test_a_file_on_the_command_line_is_loaded_in_every_mode(folder: Path) -> None:
    """Whoever starts the server has named it."""
    file = folder / "a/1/model.onnx"
    for mode in ("none", "poll", "explicit"):
        assert Started(model_files=(file,), model_control_mode=mode).names == ["model"]
    more = {"model_control_mode": "explicit", "load_model": ("model", "b")}
    started = Started(model_files=(file,), model_repository=(folder,), **more)
    assert started.names == ["b", "model"]


@pytest.mark.parametrize("name", ["bad", "nothing", "../a"])
def test_a_named_model_that_cannot_be_loaded_ends_the_start(folder: Path, name: str) -> None:
    """Unless the others shall be served."""
    more: dict[str, Any] = {"model_control_mode": "explicit", "load_model": ("a", name)}
    with pytest.raises(ConfigError, match="1 of the models cannot be served"):
        Started(model_repository=(folder,), **more)
    started = Started(model_repository=(folder,), exit_on_error=False, **more)
    assert started.names == ["a"]
    assert [failed for failed, _ in started.catalog.failures] == [name]


def test_nothing_to_serve_is_an_error_where_nothing_can_come(tmp_path: Path) -> None:
    """In poll and explicit mode models may come later."""
    with pytest.raises(ConfigError, match="there is no model to serve"):
        Started(model_repository=(tmp_path,))
    for mode in ("poll", "explicit"):
        assert Started(model_repository=(tmp_path,), model_control_mode=mode).names == []


@pytest.mark.parametrize(
    ("version", "is_confined"),
    [
        ("1.20.1", False),
        ("1.23.2", False),
        ("1.24.3", False),
        ("1.24.4", True),
        ("1.30.0", True),
        ("2.0.0", True),
        ("1.32.0+cu13", True),
    ],
)
def test_uploads_need_a_runtime_that_keeps_models_in_their_folder(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, version: str, is_confined: bool
) -> None:
    """Older ones let a model read any file of the machine; the start says so."""
    monkeypatch.setattr(onnxruntime, "__version__", version)
    more = {"model_control_mode": "explicit", "allow_model_uploads": True}
    if is_confined:
        Started(**settings, **more)
        return
    with pytest.raises(ConfigError, match=r"--allow-model-uploads: needs onnxruntime 1\.24\.4"):
        Started(**settings, **more)
