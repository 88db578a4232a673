"""Looks at the repositories from time to time, and loads and unloads what has changed there.

A model that is being copied fails to load, is told, and is tried again when it has changed again. A
repository that cannot be looked into says nothing of its models: none is unloaded because of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.catalog import UNAVAILABLE, Absent, ModelCatalog
from headrace.control.model_control import ModelControl
from headrace.control.room import NoRoomError
from headrace.control.shelf import Shelf
from headrace.control.signature import Signature, read_signature
from headrace.engines.model_folder import shown
from headrace.errors import HeadraceError, RequestError, UnavailableError

log = logging.getLogger(__name__)

WHOLE_MODEL = 0  # the version that stands for all of them


class RepositoryPoll:
    """Keeps what is served as it is on disk.

    Args:
        control: Loads and unloads.
        shelf: Says where models lie.
        catalog: Told of models that cannot be read.
        seen: What models looked like when they were loaded at the start.
        is_leaving: Says that the server is told to stop.
    """

    def __init__(
        self,
        control: ModelControl,
        shelf: Shelf,
        catalog: ModelCatalog,
        seen: Mapping[str, Signature],
        *,
        is_leaving: Callable[[], bool],
    ) -> None:
        self._control = control
        self._shelf = shelf
        self._catalog = catalog
        self._is_leaving = is_leaving
        self._seen = dict(seen)  # as it was tried last, whether that went well or not
        self._told: list[str] = []  # faults of repositories

    async def run_forever(self, interval_s: float) -> None:
        """Look every so often; what fails is told, and does not end it."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self._control.run(self.look)
            except HeadraceError as error:
                log.info("the repositories were not looked at: %s", error)
            except Exception:
                log.exception("the repositories could not be looked at because of a bug")

    def look(self) -> None:
        """Look once; on the loading thread."""
        places = self._shelf.places()
        self._tell([str(fault) for fault in places.faults])
        for name, paths in places.by_name.items():
            if self._is_leaving():
                return
            if len(paths) == 1:
                self._look_at(name, paths[0])
            elif self._seen.pop(name, None) is not None:
                self._control.unload_now(name)
                where = " and ".join(map(shown, paths))
                self._fail(name, f"it is there {len(paths)} times: {where}; rename all but one")
        if not places.faults:
            for name in [name for name in self._seen if name not in places.by_name]:
                log.info("%s is not in the repository any more", shown(name))
                del self._seen[name]
                self._control.unload_now(name)

    def _look_at(self, name: str, place: Path) -> None:
        signature = read_signature(place)
        if signature == self._seen.get(name):
            return
        try:
            self._control.load_now(name)
        except (NoRoomError, UnavailableError) as error:  # tried again though nothing changes
            log.warning("%s is not loaded now: %s", shown(name), error)
            return
        except RequestError as error:  # of a version, and the catalog knows
            log.error("%s", error)
        except HeadraceError as error:
            self._fail(name, str(error))
        self._seen[name] = signature

    def _fail(self, name: str, reason: str) -> None:
        log.error("%s is not loaded: %s", shown(name), reason)
        is_fault = not self._catalog.versions(name)
        self._catalog.mark(name, WHOLE_MODEL, Absent(UNAVAILABLE, reason, is_fault))

    def _tell(self, faults: list[str]) -> None:
        if faults != self._told:
            for fault in faults:
                log.error("%s", fault)
            self._told = faults
