"""One ModelStreamInfer by hand, over plain gRPC on tritonclient's messages."""

from __future__ import annotations

from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as pb

from helpers.rpc_client import CALL_S, SERVICE, RpcClient, arrays, told

PATH = f"{SERVICE}ModelStreamInfer"


class Stream:
    """Requests go out when they are sent; replies come when they are read."""

    def __init__(
        self,
        client: RpcClient,
        *,
        timeout_s: float | None = CALL_S,
        metadata: Iterable[tuple[str, str]] = (),
    ) -> None:
        method = client.channel.stream_stream(
            PATH,
            request_serializer=bytes,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        requests = iter(self._requests.get, None)
        self.call: Any = method(requests, timeout=timeout_s, metadata=tuple(metadata))

    def send(self, *messages: bytes) -> None:
        """Sends requests; returns at once."""
        for message in messages:
            self._requests.put(message)

    def half_close(self) -> None:
        """Says that no more requests come."""
        self._requests.put(None)

    def read(self) -> Any:
        """The next reply, as tritonclient's message; raises what ended the stream instead."""
        return next(self.call)

    def rest(self) -> list[Any]:
        """Half-closes, and reads every reply that there is."""
        self.half_close()
        return list(self.call)

    def end(self) -> tuple[list[Any], tuple[grpc.StatusCode, str]]:
        """What still came, and how the stream ended."""
        replies = []
        try:
            replies.extend(self.call)
        except grpc.RpcError:
            pass
        finally:
            self.half_close()  # lets go of the thread that sends
        return replies, told(self.call)


def outputs(reply: Any) -> dict[str, Any]:
    """The outputs of a reply; fails when it is an error."""
    assert not reply.error_message, reply.error_message
    return arrays(reply.infer_response)
