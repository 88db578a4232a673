"""The client for ordinary code: each call waits for its answer. Safe to share between threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import grpc

from headrace_client import calls
from headrace_client.calls import Call, HealthStatus
from headrace_client.errors import ClientClosed, call_failed
from headrace_client.message import InferResult, Outputs, Parameters
from headrace_client.settings import Option, Settings, Tls
from headrace_client.tensor import Array, TensorLike
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.v1 import model_config_pb2 as config_pb

T = TypeVar("T")


class Client:
    """Calls a headrace server, or any other server of the Open Inference Protocol.

    Nothing is opened before the first call. An inference is sent at most once: only gRPC itself
    sends it anew, and only when it knows that no server has seen it. Reads such as metadata are
    retried a few times while the server is unavailable.

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
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._multicallables: dict[str, grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; calls in flight end with `ClientClosed`. May be called again."""
        with self._lock:
            self._is_closed = True
            channel, self._channel = self._channel, None
            self._multicallables = {}
        if channel is not None:
            channel.close()

    def infer(
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
        """Run a model and return its outputs by name.

        Args:
            model_name: The model.
            inputs: Arrays (or what numpy makes arrays of) by input name; `Tensor` says a datatype.
                The leading dimension is the batch where the model has one.
            outputs: Names of the outputs to send back, in this order; None for all. A mapping
                gives each its parameters, such as ``{"scores": {"classification": 3}}``.
            version: The model's version, a number in a string; "" lets the server choose.
            request_id: Comes back with the reply, and stands in the server's logs.
            parameters: Request parameters, such as ``{"sequence_id": 7}``.
            timeout_s: Bound for this call; None takes the client's, `math.inf` is none.

        Returns:
            Read-only arrays in the server's order; see `InferResult.outputs`.

        Raises:
            InvalidInput: The arguments cannot become a request; nothing was sent.
            ServerUnavailable: No server was reached, or it takes no work now.
            DeadlineExceeded: No answer came in time.
            InferenceFailed: The server refused the request, or failed at it.
        """
        return self.infer_full(
            model_name,
            inputs,
            outputs=outputs,
            version=version,
            request_id=request_id,
            parameters=parameters,
            timeout_s=timeout_s,
        ).outputs

    def infer_full(
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
        return self._run(call, timeout_s)

    def is_live(self, *, timeout_s: float | None = None) -> bool:
        """Whether the server responds; False also when none is there."""
        return self._run(calls.server_live(), timeout_s)

    def is_ready(self, *, timeout_s: float | None = None) -> bool:
        """Whether the server takes inferences; False also when none is there."""
        return self._run(calls.server_ready(), timeout_s)

    def is_model_ready(
        self, model_name: str, version: str = "", *, timeout_s: float | None = None
    ) -> bool:
        """Whether the model takes inferences; False also when there is none of that name."""
        return self._run(calls.model_ready(model_name, version), timeout_s)

    def health(self, service: str = "", *, timeout_s: float | None = None) -> HealthStatus:
        """Ask the standard health service; "" is the server, a model's name is that model."""
        return self._run(calls.health(service), timeout_s)

    def server_metadata(self, *, timeout_s: float | None = None) -> pb.ServerMetadataResponse:
        """Return the server's name, version and extensions."""
        return self._run(calls.server_metadata(), timeout_s)

    def model_metadata(
        self, model_name: str, version: str = "", *, timeout_s: float | None = None
    ) -> pb.ModelMetadataResponse:
        """Return a model's versions, platform, inputs and outputs."""
        return self._run(calls.model_metadata(model_name, version), timeout_s)

    def model_config(
        self, model_name: str, version: str = "", *, timeout_s: float | None = None
    ) -> config_pb.ModelConfig:
        """Return a model's configuration as the server completed it."""
        return self._run(calls.model_config(model_name, version), timeout_s)

    def statistics(
        self, model_name: str = "", version: str = "", *, timeout_s: float | None = None
    ) -> Sequence[pb.ModelStatistics]:
        """Return counts and durations of one model, or of all for ""."""
        return self._run(calls.statistics(model_name, version), timeout_s)

    def repository_index(
        self, *, ready_only: bool = False, timeout_s: float | None = None
    ) -> Sequence[pb.RepositoryIndexResponse.ModelIndex]:
        """Return every model version of the repository with its state and, if any, the reason."""
        return self._run(calls.repository_index(ready_only=ready_only), timeout_s)

    def load_model(
        self,
        model_name: str,
        *,
        config: Mapping[str, object] | str | None = None,
        files: Mapping[str, bytes] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Serve a model as it lies in the server's repository now; return when it serves.

        The server must be in explicit mode. A load takes as long as it takes: give it time with
        `timeout_s`; one that has begun goes on when nobody waits for it any more.

        Args:
            model_name: The model.
            config: A configuration in JSON, or what becomes such, in place of the written one.
            files: Contents by VERSION/FILE, in place of the model's folder; wants `config`.
            timeout_s: Bound for this call; None takes the client's, `math.inf` is none.

        Raises:
            CallFailed: It was not loaded; what served before serves on.
        """
        self._run(calls.load_model(model_name, config, files), timeout_s)

    def unload_model(self, model_name: str, *, timeout_s: float | None = None) -> None:
        """Stop serving a model; requests that it has taken are answered. Unknown ones are no error.

        Raises:
            CallFailed: The server does not let clients do this, or is stopping.
        """
        self._run(calls.unload_model(model_name), timeout_s)

    def _run(self, call: Call[T], timeout_s: float | None) -> T:
        deadline_s = self._settings.deadline_s(timeout_s)
        try:
            reply = self._multicallable(call.path)(
                call.request,
                timeout=deadline_s,
                metadata=self._settings.metadata,
                wait_for_ready=self._settings.wait_for_ready,
            )
        except grpc.RpcError as error:
            if error.code() in call.answers:
                return call.answers[error.code()]
            if self._is_closed and error.code() is grpc.StatusCode.CANCELLED:
                raise ClientClosed("the client was closed while the call waited") from error
            raise call_failed(error, is_inference=call.is_inference) from error
        except ValueError as error:  # grpc's word for a channel that was closed just now
            raise ClientClosed("the client is closed") from error
        return call.decode(reply)

    def _multicallable(self, path: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        multicallable = self._multicallables.get(path)
        if multicallable is not None:
            return multicallable
        with self._lock:
            if self._is_closed:
                raise ClientClosed("the client is closed")
            if self._channel is None:
                self._channel = self._open()
            # Without (de)serializers grpc passes bytes through.
            multicallable = self._multicallables[path] = self._channel.unary_unary(path)
            return multicallable

    def _open(self) -> grpc.Channel:
        settings = self._settings
        if settings.tls is None:
            return grpc.insecure_channel(settings.url, settings.options())
        return grpc.secure_channel(settings.url, settings.tls.credentials(), settings.options())
