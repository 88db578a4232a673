"""RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload: which models there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from headrace.errors import RequestError, UnavailableError, UnsupportedError
from headrace.escape import printable
from headrace.link.base import Catalog
from headrace_proto.v1 import inference_pb2 as pb

CONFIG = "config"
FILE_PREFIX = "file:"
SHOWN_CHARS = 64


class Control(Protocol):
    """What changes which models are served."""

    async def load(self, name: str, config: str | None, files: Mapping[str, bytes]) -> None:
        """Serve a model as it is now; return when it serves.

        Args:
            name: Of the model.
            config: A configuration in JSON, in place of the written one.
            files: Model files by their parameter's name, in place of the model's folder.

        Raises:
            HeadraceError: It was not loaded; what served before serves on.
        """

    async def unload(self, name: str, *, with_dependents: bool) -> None:
        """Stop serving a model; return when no new request reaches it.

        Args:
            name: Of the model.
            with_dependents: The models of an ensemble, too, but for those that others are made of.

        Raises:
            HeadraceError: It was not begun.
        """

    async def names(self) -> list[str]:
        """Return the names of all models that could be loaded."""


class RepositoryService:
    """Answers on the event loop; loading is not done there."""

    def __init__(self, catalog: Catalog, control: Control | None, *, mode: str) -> None:
        """Serve the three RPCs.

        Args:
            catalog: What is served.
            control: None where clients may change nothing.
            mode: `--model-control-mode`, for the text that says so.
        """
        self._catalog = catalog
        self._control = control
        self._mode = mode

    @property
    def methods(self) -> Mapping[str, Callable[[Any], Any]]:
        """The RPCs by name: request message in, an awaitable of the response message out."""
        return {
            "RepositoryIndex": self.index,
            "RepositoryModelLoad": self.load,
            "RepositoryModelUnload": self.unload,
        }

    async def index(self, request: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        """List every model version with its state; `ready` leaves out what is not.

        Models that could be loaded and never were have a name alone.
        """
        _check_repository(request.repository_name)
        entries = self._catalog.index()
        known = {entry.name for entry in entries}
        models = [
            pb.RepositoryIndexResponse.ModelIndex(
                name=printable(entry.name),  # what failed may be called anything on disk
                version=entry.version,
                state=entry.state,
                reason=printable(entry.reason),
            )
            for entry in entries
            if entry.state == "READY" or not request.ready
        ]
        if self._control is not None and not request.ready:
            others = [name for name in await self._control.names() if name not in known]
            models += [
                pb.RepositoryIndexResponse.ModelIndex(name=printable(name)) for name in others
            ]
        return pb.RepositoryIndexResponse(models=models)

    async def load(self, request: pb.RepositoryModelLoadRequest) -> pb.RepositoryModelLoadResponse:
        """Load a model, or load it anew where it has changed."""
        _check_repository(request.repository_name)
        control = self._allowed()
        config: str | None = None
        files: dict[str, bytes] = {}
        for name, value in request.parameters.items():
            kind = value.WhichOneof("parameter_choice")
            if name == CONFIG and kind == "string_param":
                config = value.string_param
            elif name.startswith(FILE_PREFIX) and kind == "bytes_param":
                files[name] = value.bytes_param
            else:
                raise RequestError(
                    f"Unrecognized load parameter '{printable(name, SHOWN_CHARS)}': expected "
                    f"'{CONFIG}', a string, or '{FILE_PREFIX}VERSION/FILE', bytes"
                )
        if files and config is None:
            raise RequestError(
                f"files come without '{CONFIG}': send the model's configuration, in JSON, with them"
            )
        await control.load(request.model_name, config, files)
        return pb.RepositoryModelLoadResponse()

    async def unload(
        self, request: pb.RepositoryModelUnloadRequest
    ) -> pb.RepositoryModelUnloadResponse:
        """Unload a model, with `unload_dependents` the models of an ensemble as well."""
        _check_repository(request.repository_name)
        control = self._allowed()
        with_dependents = False
        for name, value in request.parameters.items():
            if name != "unload_dependents" or value.WhichOneof("parameter_choice") != "bool_param":
                raise RequestError(
                    f"Unrecognized unload parameter '{printable(name, SHOWN_CHARS)}': expected "
                    "'unload_dependents', a bool"
                )
            with_dependents = value.bool_param
        await control.unload(request.model_name, with_dependents=with_dependents)
        return pb.RepositoryModelUnloadResponse()

    def _allowed(self) -> Control:
        if self._control is None:
            raise UnavailableError(
                "explicit model load / unload is not allowed with --model-control-mode="
                f"{self._mode}; the operator can start the server with explicit"
            )
        return self._control


def _check_repository(name: str) -> None:
    if name:
        raise UnsupportedError("'repository_name' specification is not supported")
