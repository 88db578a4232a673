"""Model control: loads, reloads and unloads on a thread of its own, one after the other.

Rules
- The thread that serves never waits for a load: it only takes over what is ready (`swap.py`).
- One operation at a time, in order of arrival: two loads of one model never meet, and the memory
  that one finds free is not taken by another. So many may wait; who has left is passed over.
- Whatever fails, what served before serves on.
- What was replaced is seen off before the next operation begins, so that its memory is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final, TypeVar

from headrace.catalog import ModelCatalog
from headrace.control.shelf import Shelf, Taken, failed
from headrace.control.swap import Loaded, Swap
from headrace.control.versions import VersionLoader
from headrace.engines.ensemble_plan import models_of
from headrace.engines.model_folder import ModelSource
from headrace.errors import HeadraceError, OverloadedError, UnavailableError
from headrace.scheduling.admission import SHUTTING_DOWN

log = logging.getLogger(__name__)

MAX_WAITING: Final = 16
"""Operations that wait for their turn: each may carry files, and a load takes seconds."""

NO_FILES: Final[Mapping[str, bytes]] = MappingProxyType({})

Result = TypeVar("Result")


class ModelControl:
    """What is loaded, and what changes it.

    Args:
        shelf: Finds models.
        loader: Loads their versions.
        swap: Puts them in place.
        catalog: Says what is served.
        bind_thread: Called once on the thread that loads.
        is_leaving: Says that the server is told to stop: nothing is loaded any more.
    """

    def __init__(
        self,
        shelf: Shelf,
        loader: VersionLoader,
        swap: Swap,
        catalog: ModelCatalog,
        *,
        bind_thread: Callable[[], None],
        is_leaving: Callable[[], bool],
    ) -> None:
        self._shelf = shelf
        self._loader = loader
        self._swap = swap
        self._catalog = catalog
        self._is_leaving = is_leaving
        self.taken: dict[str, Taken] = {}  # by name, as it was loaded last
        self._num_waiting = 0
        self._ensembles: set[str] = set()  # whose models are being loaded: they may form a circle
        self._thread = ThreadPoolExecutor(1, "headrace-loader", initializer=bind_thread)

    async def load(
        self, name: str, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Serve a model as it is now; return when it serves.

        A version that has not changed since it was loaded is left as it is. The models of an
        ensemble that are not served are loaded first.

        Args:
            name: Of the model.
            config: A configuration in JSON, in place of the written one.
            files: Model files by their parameter's name, in place of the model's folder.

        Raises:
            HeadraceError: It was not loaded; what served before serves on.
        """
        try:
            if files:
                self._shelf.check_files(files)
            await self.run(self.load_now, name, config, files or NO_FILES, True)
        except HeadraceError as error:
            log.warning("a client's load of %s failed: %s", name, error)
            raise

    async def unload(self, name: str, *, with_dependents: bool = False) -> None:
        """Stop serving a model; return when no new request reaches it. Unknown ones are no error.

        Args:
            name: Of the model.
            with_dependents: The models of an ensemble, too, but for those that others are made of.

        Raises:
            HeadraceError: It was not begun.
        """
        await self.run(self.unload_now, name, with_dependents)

    async def names(self) -> list[str]:
        """Return the names of all models that could be loaded, in order."""
        return list((await asyncio.to_thread(self._shelf.places)).by_name)

    async def run(self, work: Callable[..., Result], *args: object) -> Result:
        """Do something on the loading thread, when its turn comes.

        Raises:
            OverloadedError: Too much waits for its turn.
            UnavailableError: The server is told to stop.
        """
        if self._num_waiting >= MAX_WAITING:
            raise OverloadedError(f"{MAX_WAITING} loads and unloads wait for their turn; try later")
        self._num_waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._do, work, *args)
        finally:
            self._num_waiting -= 1

    def load_now(
        self,
        name: str,
        config: str | None = None,
        files: Mapping[str, bytes] = NO_FILES,
        must_be_ready: bool = False,
    ) -> None:
        """Load a model; on the loading thread only. See `load`.

        Without `must_be_ready` an ensemble is served that lacks a model: that may come later.
        """
        taken = self._shelf.take(name, config, files)
        self._load_models_of(taken.source)
        before, served = self.taken.get(name), self._catalog.versions(name)
        wanted = set(taken.source.versions)
        unchanged = set()
        if not (taken.is_override or before is None or before.is_override):
            unchanged = taken.signature.unchanged(before.signature, wanted)
        kept = [served[each] for each in unchanged & set(served) if served[each].is_ready]
        missing = wanted - {model.spec.version for model in kept}
        if not missing and wanted == set(served):
            log.info("%s has not changed since it was loaded", name)
            return
        try:
            new = self._loader.load(taken, missing) if missing else []
            if must_be_ready:
                _check_ready(name, new)
        except BaseException:
            self._shelf.put_back(taken)
            raise
        self._swap.serve(name, kept, new)
        self.taken[name] = taken
        if before is not None:
            self._shelf.put_back(before)
        log.info("%s serves %s", name, ", ".join(f"version {each}" for each in sorted(wanted)))

    def unload_now(self, name: str, with_dependents: bool = False) -> None:
        """Unload a model; on the loading thread only. See `unload`."""
        before = self.taken.pop(name, None)
        self._catalog.write_off(name)
        self._swap.serve(name, [], [])
        if before is not None:
            self._shelf.put_back(before)
            log.info("%s is unloaded", name)
        for each in models_of(before.source.config) if before and with_dependents else ():
            others = (taken.source.config for taken in self.taken.values())
            if all(each not in models_of(config) for config in others):
                self.unload_now(each, with_dependents)

    def _load_models_of(self, source: ModelSource) -> None:
        """Load the models of an ensemble that are not served; what fails is told by its end."""
        self._ensembles.add(source.name)
        for name in models_of(source.config):
            if name not in self._ensembles and not self._catalog.versions(name):
                try:
                    self.load_now(name)
                except HeadraceError as error:
                    log.warning("%s, which is a part of %s: %s", name, source.name, error)
        self._ensembles.discard(source.name)

    async def close(self, grace_s: float) -> bool:
        """Do nothing more; False when a load is still at work after the grace. Idempotent."""
        try:
            last = self._thread.submit(self._see_off)
        except RuntimeError:
            return True  # a second call
        self._thread.shutdown(wait=False)
        _, late = await asyncio.wait([asyncio.wrap_future(last)], timeout=grace_s)
        return not late

    def _do(self, work: Callable[..., Result], *args: object) -> Result:
        if self._is_leaving():
            raise UnavailableError(SHUTTING_DOWN)
        self._see_off()
        try:
            return work(*args)
        finally:
            if self._swap.has_leaving and not self._is_leaving():
                self._thread.submit(self._see_off)

    def _see_off(self) -> None:
        try:
            self._swap.see_off()
        except Exception:
            log.exception("what was unloaded could not be closed because of a bug")


def _check_ready(name: str, new: Sequence[Loaded]) -> None:
    """Refuse an ensemble that lacks a model, and close it again.

    Raises:
        RequestError: It does.
    """
    reasons = [each.model.why_unready for each in new if each.model.why_unready]
    if reasons:
        for each in new:
            each.close()
        raise failed(name, reasons[0])
