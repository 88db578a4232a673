"""What the server and its models are, and how they have done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.errors import NotFoundError, UnavailableError
from headrace.link.base import Catalog, IndexEntry
from headrace.release import release
from headrace.rpc.messages import config_message, statistics_message, tensor_metadata
from headrace_proto.v1 import inference_pb2 as pb

# Only what works: clients take a named extension as a promise.
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "logging",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "sequence",
    "statistics",
    "trace",
)

NOT_OFFERED = {
    "SystemSharedMemoryStatus": "Client shared memory is disabled",
    "SystemSharedMemoryRegister": "Client shared memory is disabled",
    "CudaSharedMemoryStatus": "Client shared memory is disabled",
    "CudaSharedMemoryRegister": "Client shared memory is disabled",
}


class AdminService:
    """Answers from the catalog; every method may be called from the event loop only."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        server_id: str,
        is_stopping: Callable[[], bool],
        extensions: Sequence[str] = (),
    ) -> None:
        """Prepare; `extensions` are those that work beside the usual ones."""
        self._catalog = catalog
        self._extensions = sorted((*EXTENSIONS, *extensions))
        self._server_id = server_id
        self._is_stopping = is_stopping

    @property
    def methods(self) -> Mapping[str, Callable[[Any], Any]]:
        """The RPCs that are offered, by name: request message in, response message out."""
        return {
            "ServerLive": self.server_live,
            "ServerReady": self.server_ready,
            "ModelReady": self.model_ready,
            "ServerMetadata": self.server_metadata,
            "ModelMetadata": self.model_metadata,
            "ModelConfig": self.model_config,
            "ModelStatistics": self.model_statistics,
            "SystemSharedMemoryUnregister": self.system_shared_memory_unregister,
            "CudaSharedMemoryUnregister": self.cuda_shared_memory_unregister,
        }

    def server_live(self, request: pb.ServerLiveRequest) -> pb.ServerLiveResponse:  # noqa: ARG002
        """Say that the process responds; while it is stopping, say so, as Triton does."""
        if self._is_stopping():
            raise UnavailableError("Server exiting")
        return pb.ServerLiveResponse(live=True)

    def server_ready(self, request: pb.ServerReadyRequest) -> pb.ServerReadyResponse:  # noqa: ARG002
        """Say whether requests can be answered now."""
        if self._is_stopping():
            raise UnavailableError("Server exiting")
        return pb.ServerReadyResponse(ready=self._catalog.is_ready)

    def model_ready(self, request: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        """Say whether a model could answer now; an unknown one is not ready."""
        try:
            served = self._catalog.find(request.name, request.version)
        except (NotFoundError, UnavailableError):
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=served.is_ready)

    def server_metadata(self, request: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:  # noqa: ARG002
        """Name the server, its version and the extensions that work."""
        return pb.ServerMetadataResponse(
            name=self._server_id, version=release(), extensions=self._extensions
        )

    def model_metadata(self, request: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        """Describe a model's inputs and outputs; its versions, or the one that is asked for."""
        served = self._catalog.find(request.name, request.version)
        spec = served.spec
        up = [entry.version for entry in self._catalog.index() if _is_up(entry, spec.name)]
        return pb.ModelMetadataResponse(
            name=spec.name,
            versions=[str(spec.version)] if request.version else up,
            platform=spec.platform,
            inputs=[tensor_metadata(tensor) for tensor in spec.inputs],
            outputs=[tensor_metadata(tensor) for tensor in spec.outputs],
        )

    def model_config(self, request: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        """Return a model's configuration, completed from the model itself."""
        served = self._catalog.find(request.name, request.version)
        return pb.ModelConfigResponse(config=config_message(served))

    def model_statistics(self, request: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        """Return what was counted since the model was loaded; without a name, for all models."""
        if request.name:
            wanted = self._catalog.find(request.name, request.version)
            if request.version:
                return pb.ModelStatisticsResponse(model_stats=[statistics_message(wanted)])
        up = [entry.served for entry in self._catalog.index() if entry.served is not None]
        return pb.ModelStatisticsResponse(
            model_stats=[
                statistics_message(each) for each in up if request.name in ("", each.spec.name)
            ]
        )

    def system_shared_memory_unregister(
        self,
        request: pb.SystemSharedMemoryUnregisterRequest,  # noqa: ARG002
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        """Succeed: no region is registered, and clients call this before they start."""
        return pb.SystemSharedMemoryUnregisterResponse()

    def cuda_shared_memory_unregister(
        self,
        request: pb.CudaSharedMemoryUnregisterRequest,  # noqa: ARG002
    ) -> pb.CudaSharedMemoryUnregisterResponse:
        """Succeed: no region is registered, and clients call this before they start."""
        return pb.CudaSharedMemoryUnregisterResponse()


def _is_up(entry: IndexEntry, name: str) -> bool:
    return entry.name == name and entry.served is not None
