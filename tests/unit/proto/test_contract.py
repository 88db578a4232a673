"""Every message, enum and RPC of ours equals the one that an unmodified client carries."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tritonclient.grpc import model_config_pb2 as peer_config_pb
from tritonclient.grpc import service_pb2 as peer_pb

from headrace_proto.pool import POOL
from headrace_proto.service import METHODS, SERVICE
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

OURS = (pb.DESCRIPTOR, config_pb.DESCRIPTOR)
PEERS = (peer_pb.DESCRIPTOR, peer_config_pb.DESCRIPTOR)


def _messages(files: tuple[Any, ...]) -> dict[str, Descriptor]:
    def walk(descriptor: Descriptor) -> Iterator[Descriptor]:
        yield descriptor
        for nested in descriptor.nested_types:
            yield from walk(nested)

    tops = (top for file in files for top in file.message_types_by_name.values())
    return {each.full_name: each for top in tops for each in walk(top)}


def _enums(files: tuple[Any, ...]) -> dict[str, EnumDescriptor]:
    nested = (enum for message in _messages(files).values() for enum in message.enum_types)
    tops = (enum for file in files for enum in file.enum_types_by_name.values())
    return {enum.full_name: enum for enum in (*tops, *nested)}


def _field(field: FieldDescriptor) -> tuple[object, ...]:
    return (
        field.number,
        field.name,
        field.json_name,
        field.type,
        field.is_repeated,
        field.has_presence,
        field.is_packed,
        field.message_type.full_name if field.message_type else None,
        field.enum_type.full_name if field.enum_type else None,
        field.containing_oneof.name if field.containing_oneof else None,
        field.GetOptions().SerializeToString(deterministic=True),
    )


def _shape(descriptor: Descriptor) -> dict[str, object]:
    return {
        "fields": sorted(_field(field) for field in descriptor.fields),
        "oneofs": {one.name: sorted(f.name for f in one.fields) for one in descriptor.oneofs},
        "map entry": descriptor.GetOptions().map_entry,
        "nested": sorted(nested.name for nested in descriptor.nested_types),
        "enums": sorted(enum.name for enum in descriptor.enum_types),
    }


def test_the_same_messages_are_declared() -> None:
    """No message is missing and none is of our own invention."""
    assert len(_messages(PEERS)) > 100
    assert sorted(_messages(OURS)) == sorted(_messages(PEERS))


@pytest.mark.parametrize("name", sorted(_messages(PEERS)))
def test_message_is_equal(name: str) -> None:
    """Fields agree in number, name, type, label and oneof; nested types agree in name."""
    assert _shape(_messages(OURS)[name]) == _shape(_messages(PEERS)[name])


def test_enums_are_equal() -> None:
    """Enums agree in names and in the number of every value."""
    ours, peers = (
        {name: [(v.name, v.number) for v in enum.values] for name, enum in _enums(files).items()}
        for files in (OURS, PEERS)
    )
    assert "inference.DataType" in peers
    assert ours == peers


def test_service_is_equal() -> None:
    """The table has every RPC under its path on the wire, with its messages and streaming."""
    service = peer_pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    peers = {
        method.name: (
            f"/{service.full_name}/{method.name}",
            method.input_type.full_name,
            method.output_type.full_name,
            method.client_streaming,
            method.server_streaming,
        )
        for method in service.methods
    }
    ours = {
        name: (
            method.path,
            method.request.DESCRIPTOR.full_name,
            method.response.DESCRIPTOR.full_name,
            method.client_streaming,
            method.server_streaming,
        )
        for name, method in METHODS.items()
    }
    assert len(peers) == 20
    assert ours == peers
    assert service.full_name == SERVICE


def test_table_and_module_share_their_classes() -> None:
    """A message made from the module is an instance of the class in the table."""
    assert METHODS["ModelInfer"].request is pb.ModelInferRequest
    assert METHODS["ModelConfig"].response is pb.ModelConfigResponse
    assert POOL.FindMessageTypeByName("inference.ModelConfig") is config_pb.ModelConfig.DESCRIPTOR


def test_nested_names_are_reachable() -> None:
    """Nested classes, enums and their values hang off their message as in protoc's own modules."""
    nested = pb.ModelInferRequest.InferInputTensor
    assert isinstance(pb.ModelInferRequest(inputs=[nested(name="x")]).inputs[0], nested)
    assert nested.__qualname__ == "ModelInferRequest.InferInputTensor"
    assert config_pb.ModelInstanceGroup.KIND_GPU == 1
    assert config_pb.ModelInstanceGroup.Kind.Value("KIND_MODEL") == 3
    assert config_pb.DataType.Name(config_pb.TYPE_BF16) == "TYPE_BF16"


def test_bytes_of_a_peer_are_understood() -> None:
    """A request that a peer serialises parses here to the same fields, and the way back."""
    peer = peer_pb.ModelInferRequest(model_name="m", id="7", raw_input_contents=[b"ab", b""])
    peer.parameters["sequence_id"].uint64_param = 2**64 - 1
    peer.inputs.add(name="x", datatype="FP32", shape=[-1, 3])
    ours = pb.ModelInferRequest.FromString(peer.SerializeToString())
    assert (ours.model_name, ours.id, list(ours.raw_input_contents)) == ("m", "7", [b"ab", b""])
    assert ours.parameters["sequence_id"].uint64_param == 2**64 - 1
    assert (ours.inputs[0].name, list(ours.inputs[0].shape)) == ("x", [-1, 3])
    assert peer_pb.ModelInferRequest.FromString(ours.SerializeToString()) == peer


@pytest.mark.parametrize("order", ["ours first", "peer first"])
def test_imports_beside_tritonclient(order: str) -> None:
    """One process may import both packages, in either order, and use both."""
    imports = [
        "from headrace_proto.v1 import inference_pb2 as ours, model_config_pb2",
        "from tritonclient.grpc import service_pb2 as peer",
    ]
    use = (
        "sent = peer.ServerLiveResponse(live=True).SerializeToString()\n"
        "assert ours.ServerLiveResponse.FromString(sent).live"
    )
    lines = imports if order == "ours first" else imports[::-1]
    _run("\n".join([*lines, use]))


def test_default_pool_is_left_alone() -> None:
    """Importing our messages puts nothing into the pool that every package shares."""
    _run(
        "import headrace_proto.service\n"
        "from google.protobuf import descriptor_pool\n"
        "try:\n"
        "    descriptor_pool.Default().FindMessageTypeByName('inference.ModelInferRequest')\n"
        "except KeyError:\n"
        "    raise SystemExit(0)\n"
        "raise SystemExit('the default pool knows our message')\n"
    )


def _run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
