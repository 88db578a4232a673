"""Texts of statuses are percent-encoded once on their way, whoever of a server's parts wrote them.

Which bytes are encoded is up to the sender (a space is by one transport, and not by the other), so
it is what a client makes of a text that must be the same.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import grpc
import pytest

from headrace_proto.v1 import inference_pb2 as pb
from helpers.raw_http2 import INFER, RawHttp2
from helpers.rpc_client import slow_message
from helpers.server import Server
from helpers.slow_calls import LONG

METADATA = "/inference.GRPCInferenceService/ModelMetadata"
NAME = "50% of ü%20ü"
REQUESTS: dict[str, Any] = {
    INFER: pb.ModelInferRequest(model_name=NAME),
    METADATA: pb.ModelMetadataRequest(name=NAME),
}
DEADLINE_EXCEEDED, NOT_FOUND = 4, 5
DEADLINE_TEXTS = ("Deadline Exceeded", "its deadline passed, or can no longer be met")


@pytest.mark.parametrize("path", [INFER, METADATA], ids=["of the front", "of the server behind"])
def test_a_text_of_a_status_is_encoded_once(server: Server, path: str) -> None:
    """As it is on the wire, and as a client has it."""
    message = REQUESTS[path].SerializeToString()
    expected = f"Request for unknown model: '{NAME}' is not found"
    with RawHttp2(server.address) as client:
        answer = client.call(message, path)
    assert answer.grpc_status == NOT_FOUND
    assert unquote(answer.grpc_message) == expected
    with grpc.insecure_channel(server.address) as channel:
        call: Any = channel.unary_unary(path)
        with pytest.raises(grpc.RpcError) as caught:
            call(message, timeout=20)
        assert caught.value.details() == expected


def test_the_text_of_a_deadline_is_encoded_once(slow: Server) -> None:
    """The transport ends a call that runs for longer; the core one that is known to."""
    with RawHttp2(slow.address) as client:
        answer = client.call(slow_message(LONG, [1.0]), grpc_timeout="100m")
    assert answer.grpc_status == DEADLINE_EXCEEDED
    assert unquote(answer.grpc_message) in DEADLINE_TEXTS
