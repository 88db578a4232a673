"""All models that the server knows, with the state of each version."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from headrace.errors import NotFoundError, RequestError, UnavailableError
from headrace.escape import cited
from headrace.link.base import IndexEntry
from headrace.model import ServedModel

log = logging.getLogger(__name__)

READY = "READY"
LOADING = "LOADING"
UNLOADING = "UNLOADING"
UNAVAILABLE = "UNAVAILABLE"
UNLOADED = "unloaded"  # Triton's reason

MAX_ABSENT = 1024
"""Versions that are remembered though they are not served; the oldest are forgotten beyond."""

Versions = Mapping[int, ServedModel]


class Absent(NamedTuple):
    """Why a version is not served.

    `is_fault` says whether a strict server is not ready because of it.
    """

    state: str
    reason: str
    is_fault: bool


class ModelCatalog:
    """Names to versions to served models.

    One thread writes, any thread may read: what a reader looks into is replaced, never changed.
    """

    def __init__(self, *, strict_readiness: bool = True) -> None:
        """Start empty.

        Args:
            strict_readiness: The server is ready only while every model is.
        """
        self.generation = 0
        self._strict_readiness = strict_readiness
        self._served: Mapping[str, Versions] = {}
        self._absent: Mapping[tuple[str, int], Absent] = {}
        self._is_alive: Callable[[], bool] = lambda: True

    def watch(self, is_alive: Callable[[], bool]) -> None:
        """Ask this whether the device and the server can take work at all."""
        self._is_alive = is_alive

    def add(self, model: ServedModel) -> None:
        """Serve a version from now on, beside the others of its model."""
        name = model.spec.name
        self.serve(name, [*self.versions(name).values(), model])

    def add_failed(self, name: str, version: int, reason: str) -> None:
        """Remember why a version is not served; version 0 stands for the whole model."""
        self.mark(name, version, Absent(UNAVAILABLE, reason, is_fault=True))

    def serve(self, name: str, models: Iterable[ServedModel]) -> list[ServedModel]:
        """Serve exactly these versions of a model from now on, all of them at once.

        Returns:
            Those that were served and are no more. Requests may still be on their way to them.
        """
        before = self.versions(name)
        after = {model.spec.version: model for model in models}
        served = {other: versions for other, versions in self._served.items() if other != name}
        self._served = served | ({name: after} if after else {})
        self._absent = {
            key: absent
            for key, absent in self._absent.items()
            if key[0] != name or key[1] not in {*after, 0}
        }
        self.generation += 1  # last: who sees the new one finds what is served now
        kept = set(map(id, after.values()))
        return [model for model in before.values() if id(model) not in kept]

    def mark(self, name: str, version: int, absent: Absent) -> None:
        """Say of a version why it is not served; of one that is served nothing is shown of it."""
        entries = {key: each for key, each in self._absent.items() if key != (name, version)}
        entries[name, version] = absent
        for key in list(entries)[: max(0, len(entries) - MAX_ABSENT)]:
            del entries[key]
        self._absent = entries
        self.generation += 1

    def forget(self, name: str) -> None:
        """Remember nothing of versions that are not served."""
        self._absent = {key: absent for key, absent in self._absent.items() if key[0] != name}
        self.generation += 1

    def write_off(self, name: str) -> None:
        """Say of every version that is not served that it was unloaded."""
        gone = Absent(UNAVAILABLE, UNLOADED, is_fault=False)
        self._absent = {
            key: gone if key[0] == name else absent for key, absent in self._absent.items()
        }
        self.generation += 1

    def versions(self, name: str) -> Versions:
        """Return the served versions of a model."""
        return self._served.get(name, {})

    def models(self) -> Iterator[ServedModel]:
        """Yield every served version, in order of name and version."""
        for _, versions in sorted(self._served.items()):
            for _, model in sorted(versions.items()):
                yield model

    @property
    def failures(self) -> dict[tuple[str, int], str]:
        """Why what should be served is not served, by name and version."""
        return {key: absent.reason for key, absent in self._absent.items() if absent.is_fault}

    @property
    def is_ready(self) -> bool:
        """Whether the server can take requests: see `strict_readiness`."""
        if not self._is_alive():
            return False
        if not self._strict_readiness:
            return True
        is_faulty = any(absent.is_fault for absent in self._absent.values())
        return not is_faulty and all(model.is_ready for model in self.models())

    def close(self) -> None:
        """Close every model, the rest too when one fails."""
        for model in self.models():
            try:
                model.close()
            except Exception:
                log.exception("closing %s failed", model.spec.name)

    def find(self, name: str, version: str) -> ServedModel:
        """Return the version that serves a request; see `Catalog.find`."""
        versions = self._served.get(name)
        if version and not (version.isascii() and version.isdigit() and len(version) < 19):
            raise RequestError(
                f"failed to get model version from specified version string '{cited(version)}': "
                "expected a number, or nothing for the newest"
            )
        if versions is None:
            raise self._absent_model(name)
        if version:
            found = versions.get(int(version))
            if found is None:
                raise self._no_version(name, int(version), versions)
            return found
        for _, model in sorted(versions.items(), reverse=True):
            if model.is_ready:
                return model
        raise UnavailableError(f"Request for unknown model: '{name}' is not at ready state")

    def index(self) -> list[IndexEntry]:
        """Return every version with its state."""
        entries = [
            IndexEntry(
                model.spec.name,
                str(model.spec.version),
                READY if model.is_ready else UNAVAILABLE,
                model.why_unready,
                model,
            )
            for model in self.models()
        ]
        served = {(entry.name, entry.version) for entry in entries}
        entries += [
            IndexEntry(name, str(version) if version else "", absent.state, absent.reason, None)
            for (name, version), absent in self._absent.items()
            if (name, str(version)) not in served
        ]
        return sorted(entries, key=lambda entry: (entry.name, len(entry.version), entry.version))

    def _absent_model(self, name: str) -> Exception:
        states = [absent for (other, _), absent in self._absent.items() if other == name]
        if any(not _is_unloaded(absent) for absent in states):
            return UnavailableError(f"Request for unknown model: '{name}' is not at ready state")
        what = "has no available versions" if states else "is not found"
        return NotFoundError(f"Request for unknown model: '{cited(name)}' {what}")

    def _no_version(self, name: str, version: int, versions: Versions) -> Exception:
        absent = self._absent.get((name, version))
        if absent is not None and not _is_unloaded(absent):
            return UnavailableError(
                f"Request for unknown model: '{name}' version {version} is not at ready state"
            )
        there = ", ".join(str(number) for number in sorted(versions))
        return NotFoundError(
            f"Request for unknown model: '{name}' version {version} is not found; there is {there}"
        )


def _is_unloaded(absent: Absent) -> bool:
    return absent.state == UNLOADING or absent.reason == UNLOADED
