"""All models that the server knows, with the state of each version."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from headrace.errors import NotFoundError, RequestError, UnavailableError
from headrace.link.base import IndexEntry
from headrace.model import ServedModel

log = logging.getLogger(__name__)

READY = "READY"
UNAVAILABLE = "UNAVAILABLE"


class ModelCatalog:
    """Names to versions to served models; changed at start and at shutdown only."""

    def __init__(self, *, strict_readiness: bool = True) -> None:
        """Start empty.

        Args:
            strict_readiness: The server is ready only while every model is.
        """
        self.generation = 0
        self._strict_readiness = strict_readiness
        self._served: dict[str, dict[int, ServedModel]] = {}
        self._failed: dict[tuple[str, int], str] = {}
        self._is_alive: Callable[[], bool] = lambda: True

    def watch(self, is_alive: Callable[[], bool]) -> None:
        """Ask this whether the device and the server can take work at all."""
        self._is_alive = is_alive

    def add(self, model: ServedModel) -> None:
        """Serve a version from now on."""
        self._served.setdefault(model.spec.name, {})[model.spec.version] = model
        self.generation += 1

    def add_failed(self, name: str, version: int, reason: str) -> None:
        """Remember why a version is not served; version 0 stands for the whole model."""
        self._failed[(name, version)] = reason
        self.generation += 1

    def models(self) -> Iterator[ServedModel]:
        """Yield every served version, in order of name and version."""
        for name in sorted(self._served):
            for version in sorted(self._served[name]):
                yield self._served[name][version]

    @property
    def failures(self) -> dict[tuple[str, int], str]:
        """Why what is not served is not served, by name and version."""
        return dict(self._failed)

    @property
    def is_ready(self) -> bool:
        """Whether the server can take requests: see `strict_readiness`."""
        if not self._is_alive():
            return False
        if not self._strict_readiness:
            return True
        return not self._failed and all(model.is_ready for model in self.models())

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
                f"failed to get model version from specified version string '{version[:32]}': "
                "expected a number, or nothing for the newest"
            )
        if versions is None:
            raise self._absent(name)
        if version:
            found = versions.get(int(version))
            if found is None:
                raise self._no_version(name, int(version))
            return found
        for number in sorted(versions, reverse=True):
            if versions[number].is_ready:
                return versions[number]
        raise UnavailableError(f"Request for unknown model: '{name}' is not at ready state")

    def index(self) -> list[IndexEntry]:
        """Return every version with its state."""
        entries = [
            IndexEntry(
                model.spec.name,
                str(model.spec.version),
                READY if model.is_ready else UNAVAILABLE,
                "" if model.is_ready else "its slots have failed",
                model,
            )
            for model in self.models()
        ]
        entries += [
            IndexEntry(name, str(version) if version else "", UNAVAILABLE, reason, None)
            for (name, version), reason in self._failed.items()
        ]
        return sorted(entries, key=lambda entry: (entry.name, len(entry.version), entry.version))

    def _absent(self, name: str) -> Exception:
        if any(failed == name for failed, _ in self._failed):
            return UnavailableError(f"Request for unknown model: '{name}' is not at ready state")
        return NotFoundError(f"Request for unknown model: '{name[:64]}' is not found")

    def _no_version(self, name: str, version: int) -> Exception:
        if (name, version) in self._failed:
            return UnavailableError(
                f"Request for unknown model: '{name}' version {version} is not at ready state"
            )
        there = ", ".join(str(number) for number in sorted(self._served[name]))
        return NotFoundError(
            f"Request for unknown model: '{name}' version {version} is not found; there is {there}"
        )
