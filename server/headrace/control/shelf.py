"""Where models come from: repositories, single files, and what clients send."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.control.signature import Signature, read_signature
from headrace.control.uploads import Uploads
from headrace.engines.config_json import parse_json
from headrace.engines.model_folder import ModelSource
from headrace.engines.platforms import ONNX
from headrace.engines.repository import Places, find_places, read_model
from headrace.errors import ConfigError, HeadraceError, RequestError
from headrace.escape import printable
from headrace_proto.v1 import model_config_pb2 as config_pb

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """A model that was found, and what it looked like before it was read.

    Attributes:
        source: What to open.
        signature: Of its files.
        is_override: It is not what lies in the repository: the next load takes that again.
        upload: The folder of its files, where a client sent them.
    """

    source: ModelSource
    signature: Signature
    is_override: bool = False
    upload: Path | None = None


class Shelf:
    """Finds models by name.

    Args:
        repositories: Folders of model folders.
        files: Models that are one file.
        uploads: Where files of clients are put.
        compute_capability: Of the GPU, such as "8.0"; empty on a CPU.
    """

    def __init__(
        self,
        repositories: Sequence[Path],
        files: Sequence[Path],
        uploads: Uploads,
        *,
        compute_capability: str,
    ) -> None:
        self._repositories = repositories
        self._files = files
        self._uploads = uploads
        self._compute_capability = compute_capability

    def places(self) -> Places:
        """Return where models lie now, those that came from clients apart."""
        return find_places(self._repositories, self._files)

    def check_files(self, files: Mapping[str, bytes]) -> None:
        """Refuse files of a client that cannot be put anywhere; quick, and any thread may call it.

        Raises:
            UnsupportedError: The server takes none.
            RequestError: Their names, their number or their sizes are wrong.
        """
        self._uploads.check(files)

    def take(self, name: str, config: str | None, files: Mapping[str, bytes]) -> Taken:
        """Find a model; files of a client are put into a folder first.

        Raises:
            RequestError: What the client sent is wrong.
            ConfigError: The model is not in any repository, or has faults there.
        """
        if config is None:
            place = self.places().one(name)
            signature = read_signature(place)  # before it is read: a later change is seen as one
            return Taken(self._read(place), signature)
        try:
            override = parse_json(config)
            if files:
                return self._take_upload(name, override, files)
            place = self.places().one(name)
            signature = read_signature(place)
            return Taken(self._read(place, override), signature, is_override=True)
        except ConfigError as error:
            raise failed(name, self._uploads.hidden(str(error))) from error

    def put_back(self, taken: Taken) -> None:
        """Remove the files of a client, which nobody needs any more."""
        if taken.upload is not None:
            self._uploads.remove(taken.upload)

    def _take_upload(
        self, name: str, override: config_pb.ModelConfig, files: Mapping[str, bytes]
    ) -> Taken:
        try:
            place = self._uploads.put(name, files)
        except OSError as error:
            log.error("model files of a client cannot be written: %s", error)
            raise HeadraceError(
                "the files cannot be written; the server's log says more"
            ) from error
        try:
            source = self._read(place, override)
            if source.config.platform != ONNX.name:
                raise RequestError("plans are loaded only from the operator's model repository")
        except BaseException:
            self._uploads.remove(place)
            raise
        return Taken(source, read_signature(place), is_override=True, upload=place)

    def _read(self, place: Path, override: config_pb.ModelConfig | None = None) -> ModelSource:
        return read_model(place, compute_capability=self._compute_capability, override=override)


def failed(name: str, reason: str) -> RequestError:
    """Say that a load failed, in Triton's words."""
    return RequestError(printable(f"load failed for model '{name}': {reason}"))
