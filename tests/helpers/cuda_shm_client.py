"""A client with tensors in memory of a GPU, on plain gRPC and the messages of headrace_proto.

The machine that is lent for its GPU has no other client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc

from headrace_proto.service import METHODS
from headrace_proto.v1 import inference_pb2 as pb
from helpers.cuda_owner import OUT_AT, ROOM, Owner

CALL_S = 60.0


class CudaShmClient:
    """Asks a server over a socket, by the messages of headrace_proto."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)

    def start(self, name: str, request: Any) -> Any:
        """A call on its way: a gRPC future."""
        method = METHODS[name]
        call: Any = self.channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return call.future(request, timeout=CALL_S)

    def ask(self, name: str, /, **fields: Any) -> Any:
        """The answer of an RPC; a grpc.RpcError when it is refused."""
        return self.start(name, METHODS[name].request(**fields)).result()

    def refusal(self, name: str, /, **fields: Any) -> tuple[str, str]:
        """The status of an RPC, and its text."""
        call = self.start(name, METHODS[name].request(**fields))
        return call.code().name, call.details()

    def register(self, name: str, owner: Owner, size: int = ROOM) -> None:
        fields = {"raw_handle": owner.handle, "device_id": 0, "byte_size": size}
        self.ask("CudaSharedMemoryRegister", name=name, **fields)

    def infer(self, size: int, source: str = "r", target: str = "r") -> Any:
        """A request to the identity, of so many bytes at 0, whose answer is wanted at OUT_AT."""
        request = pb.ModelInferRequest(model_name="identity_uint8")
        tensor = request.inputs.add(name="x", datatype="UINT8", shape=[1, size])
        output = request.outputs.add(name="y")
        for each, region, offset in ((tensor, source, 0), (output, target, OUT_AT)):
            each.parameters["shared_memory_region"].string_param = region
            each.parameters["shared_memory_byte_size"].int64_param = size
            each.parameters["shared_memory_offset"].int64_param = offset
        return self.start("ModelInfer", request)


def copied_bytes(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What a server's figures say that it copied: by the host either way, and by the device."""
    names = {way: f"headrace_region_{way}_bytes_total" for way in ("read", "written", "direct")}
    return {way: after[name] - before[name] for way, name in names.items()}
