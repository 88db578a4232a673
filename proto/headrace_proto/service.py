"""The RPCs of the inference service as a table, read off the service's own descriptor.

Servers register generic method handlers from it and clients open their calls by it, so that nothing
depends on generated stubs.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf import message_factory

from headrace_proto.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

SERVICE = "inference.GRPCInferenceService"


class Method(NamedTuple):
    """One RPC of the service.

    Attributes:
        name: Such as ``ModelInfer``.
        path: What stands on the wire, such as ``/inference.GRPCInferenceService/ModelInfer``.
        request: Class of the request message.
        response: Class of the response message.
        client_streaming: The client sends any number of requests.
        server_streaming: The server sends any number of responses.
    """

    name: str
    path: str
    request: type[Message]
    response: type[Message]
    client_streaming: bool
    server_streaming: bool


def _method(descriptor: MethodDescriptor) -> Method:
    return Method(
        name=descriptor.name,
        path=f"/{SERVICE}/{descriptor.name}",
        request=message_factory.GetMessageClass(descriptor.input_type),
        response=message_factory.GetMessageClass(descriptor.output_type),
        client_streaming=descriptor.client_streaming,
        server_streaming=descriptor.server_streaming,
    )


METHODS: Mapping[str, Method] = MappingProxyType(
    {method.name: _method(method) for method in POOL.FindServiceByName(SERVICE).methods}
)
