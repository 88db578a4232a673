"""The client for asyncio: each call is awaited. It belongs to the event loop of its first call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import grpc
import grpc.aio

from headrace_client import calls
from headrace_client.calls import Call, HealthStatus
from headrace_client.errors import ClientClosed, call_failed
from headrace_client.message import InferResult, Outputs, Parameters
from headrace_client.settings import Option, Settings, Tls
from headrace_client.tensor import Array, TensorLike
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.v1 import model_config_pb2 as config_pb

T = TypeVar("T")


class AsyncClient:
    """Does what `Client` does, awaited; arguments, results and errors are those of `Client`.

    A cancelled call is cancelled on the server, too.

    Args:
        url: ``host:port``, or a gRPC target such as ``dns:///headrace.example:8001``.
        timeout_s: Bound for each call that does not bring its own; None for no bound.
        tls: Certificates, for an encrypted connection; None for plain text.
        load_balancing: "round_robin" over all addresses, or "pick_first"; None takes round_robin
            for ``dns:`` targets and pick_first otherwise.
        wait_for_ready: Wait for a server within the call's bound, instead of failing at once when
            none answers.
        metadata: Sent with every call, for example an authorization.
        channel_options: More of gRPC's channel arguments; they win over the client's own.

    Raises:
        InvalidInput: An argument makes no sense.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float | None = 60.0,
        tls: Tls | None = None,
        load_balancing: str | None = None,
        wait_for_ready: bool = False,
        metadata: Sequence[tuple[str, str | bytes]] = (),
        channel_options: Sequence[Option] = (),
    ) -> None:
        self._settings = Settings(
            url, timeout_s, tls, load_balancing, wait_for_ready, tuple(metadata), channel_options
        )
        self._channel: grpc.aio.Channel | None = None
        self._multicallables: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls in flight end with `ClientClosed`. May be called again."""
        self._is_closed = True
        channel, self._channel = self._channel, None
        self._multicallables = {}
        if channel is not None:
            await channel.close()

    async def infer(
        self,
        model_name: str,
        inputs: Mapping[str, TensorLike],
        *,
        outputs: Outputs | None = None,
        version: str = "",
        request_id: str = "",
        parameters: Parameters | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """Run a model and return its outputs by name; see `Client.infer`."""
        result = await self.infer_full(
            model_name,
            inputs,
            outputs=outputs,
            version=version,
            request_id=request_id,
            parameters=parameters,
            timeout_s=timeout_s,
        )
        return result.outputs

    async def infer_full(
        self,
        model_name: str,
        inputs: Mapping[str, TensorLike],
        *,
        outputs: Outputs | None = None,
        version: str = "",
        request_id: str = "",
        parameters: Parameters | None = None,
        timeout_s: float | None = None,
    ) -> InferResult:
        """Do what `infer` does, and return the whole reply: datatypes, version, id, parameters."""
        call = calls.infer(
            model_name,
            inputs,
            outputs=outputs,
            version=version,
            request_id=request_id,
            parameters=parameters,
        )
        return await self._run(call, timeout_s)

    async def is_live(self, *, timeout_s: float | None = None) -> bool:
        """Whether the server responds; False also when none is there."""
        return await self._run(calls.server_live(), timeout_s)

    async def is_ready(self, *, timeout_s: float | None = None) -> bool:
        """Whether the server takes inferences; False also when none is there."""
        return await self._run(calls.server_ready(), timeout_s)

    async def is_model_ready(
        self, model_name: str, version: str = "", *, timeout_s: float | None = None
    ) -> bool:
        """Whether the model takes inferences; False also when there is none of that name."""
        return await self._run(calls.model_ready(model_name, version), timeout_s)

    async def health(self, service: str = "", *, timeout_s: float | None = None) -> HealthStatus:
        """Ask the standard health service; "" is the server, a model's name is that model."""
        return await self._run(calls.health(service), timeout_s)

    async def server_metadata(self, *, timeout_s: float | None = None) -> pb.ServerMetadataResponse:
        """Return the server's name, version and extensions."""
        return await self._run(calls.server_metadata(), timeout_s)

    async def model_metadata(
        self, model_name: str, version: str = "", *, timeout_s: float | None = None
    ) -> pb.ModelMetadataResponse:
        """Return a model's versions, platform, inputs and outputs."""
        return await self._run(calls.model_metadata(model_name, version), timeout_s)

    async def model_config(
        self, model_name: str, version: str = "", *, timeout_s: float | None = None
    ) -> config_pb.ModelConfig:
        """Return a model's configuration as the server completed it."""
        return await self._run(calls.model_config(model_name, version), timeout_s)

    async def statistics(
        self, model_name: str = "", version: str = "", *, timeout_s: float | None = None
    ) -> Sequence[pb.ModelStatistics]:
        """Return counts and durations of one model, or of all for ""."""
        return await self._run(calls.statistics(model_name, version), timeout_s)

    async def repository_index(
        self, *, ready_only: bool = False, timeout_s: float | None = None
    ) -> Sequence[pb.RepositoryIndexResponse.ModelIndex]:
        """Return every model version of the repository with its state and, if any, the reason."""
        return await self._run(calls.repository_index(ready_only=ready_only), timeout_s)

    async def load_model(
        self,
        model_name: str,
        *,
        config: Mapping[str, object] | str | None = None,
        files: Mapping[str, bytes] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Serve a model as it lies in the repository now; see `Client.load_model`."""
        await self._run(calls.load_model(model_name, config, files), timeout_s)

    async def unload_model(self, model_name: str, *, timeout_s: float | None = None) -> None:
        """Stop serving a model; see `Client.unload_model`."""
        await self._run(calls.unload_model(model_name), timeout_s)

    async def _run(self, call: Call[T], timeout_s: float | None) -> T:
        deadline_s = self._settings.deadline_s(timeout_s)
        try:
            reply = await self._multicallable(call.path)(
                call.request,
                timeout=deadline_s,
                metadata=self._settings.metadata,
                wait_for_ready=self._settings.wait_for_ready,
            )
        except grpc.RpcError as error:
            if error.code() in call.answers:
                return call.answers[error.code()]
            raise call_failed(error, is_inference=call.is_inference) from error
        except asyncio.CancelledError as error:
            # grpc cancels its calls when the channel closes; a task that someone cancels says so.
            task = asyncio.current_task()
            if not self._is_closed or (task is not None and task.cancelling()):
                raise
            raise ClientClosed("the client was closed while the call waited") from error
        return call.decode(reply)

    def _multicallable(self, path: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
        if self._is_closed:
            raise ClientClosed("the client is closed")
        if self._channel is None:
            self._channel = self._open()
        if path not in self._multicallables:
            # Without (de)serializers grpc passes bytes through.
            self._multicallables[path] = self._channel.unary_unary(path)
        return self._multicallables[path]

    def _open(self) -> grpc.aio.Channel:
        settings = self._settings
        if settings.tls is None:
            return grpc.aio.insecure_channel(settings.url, settings.options())
        return grpc.aio.secure_channel(settings.url, settings.tls.credentials(), settings.options())
