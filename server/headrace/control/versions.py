"""Loads the versions of a model beside those that run: all of them, or none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from headrace.catalog import LOADING, UNAVAILABLE, Absent, ModelCatalog
from headrace.control.room import Need, check_room
from headrace.control.shelf import Taken, failed
from headrace.control.swap import Loaded
from headrace.device.base import Device
from headrace.engines.model_folder import ModelSource
from headrace.engines.platforms import ONNX
from headrace.errors import HeadraceError, OverloadedError, UnavailableError
from headrace.loader import Loader
from headrace.metrics import Metrics
from headrace.scheduling.admission import SHUTTING_DOWN
from headrace.slots.blocks import BlockPool

log = logging.getLogger(__name__)

BUG = "internal error; the server's log says more"
PASSING = (OverloadedError, UnavailableError)  # nothing is wrong with the model

MakeLoader = Callable[[BlockPool], Loader]


class VersionLoader:
    """Loads on the thread that calls it, which is never the one that serves.

    Args:
        device: Theirs.
        catalog: Told what is loading and what could not be loaded.
        metrics: Told to forget what could not be loaded.
        make_loader: Each version is warmed up with staging blocks of its own: those of the server
            belong to the thread that serves.
        blocks_bytes: As many as the server may have.
        is_leaving: Says that the server is told to stop.
        shown: Takes out of a text what clients shall not see.
    """

    def __init__(
        self,
        device: Device,
        catalog: ModelCatalog,
        metrics: Metrics,
        make_loader: MakeLoader,
        *,
        blocks_bytes: int,
        is_leaving: Callable[[], bool],
        shown: Callable[[str], str] = str,
    ) -> None:
        self._device = device
        self._catalog = catalog
        self._metrics = metrics
        self._make_loader = make_loader
        self._blocks_bytes = blocks_bytes
        self._is_leaving = is_leaving
        self._shown = shown

    def load(self, taken: Taken, versions: Iterable[int]) -> list[Loaded]:
        """Load versions of a model; what served goes on serving.

        Args:
            taken: Where it lies.
            versions: Which of them.

        Raises:
            RequestError: One cannot be served; nothing of the others stays open. The catalog has
                the reason.
            NoRoomError: There is no memory for one of them now.
            UnavailableError: The server is told to stop.
        """
        source = taken.source
        name, served = source.name, self._catalog.versions(source.name)
        versions = sorted(versions)
        for version in versions:
            self._mark(name, version, LOADING, "")
        version = versions[0]
        try:
            with ExitStack() as undo:
                loaded: list[Loaded] = []
                for version in versions:
                    if self._is_leaving():
                        raise UnavailableError(SHUTTING_DOWN)
                    self._check_room(taken, version)
                    loaded.append(self._load_one(source, version))
                    undo.callback(loaded[-1].close)
                undo.pop_all()
                return loaded
        except BaseException as error:
            self._catalog.forget(name)
            reason = self._shown(str(error)) if isinstance(error, HeadraceError) else BUG
            self._mark(name, version, UNAVAILABLE, reason)
            for each in set(versions) - set(served):
                self._metrics.remove_model(name, str(each))
            if isinstance(error, HeadraceError) and not isinstance(error, PASSING):
                raise failed(name, f"version {version}: {reason}") from error
            raise

    def _load_one(self, source: ModelSource, version: int) -> Loaded:
        blocks = BlockPool(self._device, self._blocks_bytes)
        with ExitStack() as undo:
            undo.callback(blocks.close)
            model = self._make_loader(blocks).load(source, version)
            undo.pop_all()
        if model.spec.platform == ONNX.name:
            from headrace.engines.ort_session import warn_of_waiting

            warn_of_waiting()
        return Loaded(model, blocks)

    def _check_room(self, taken: Taken, version: int) -> None:
        name = taken.source.name
        served = self._catalog.versions(name)
        taken_bytes = max((model.taken_bytes for model in served.values()), default=0)
        need = Need(taken.signature.size_bytes(version), taken_bytes)
        check_room(need, self._device.memory_info(), what=f"{name} version {version}")

    def _mark(self, name: str, version: int, state: str, reason: str) -> None:
        """A model that has a version that serves keeps nobody from being ready."""
        is_fault = not self._catalog.versions(name)
        self._catalog.mark(name, version, Absent(state, reason, is_fault))
