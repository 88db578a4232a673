"""Learns by reflection alone, as grpcurl does, what a server offers, and calls it by that."""

from __future__ import annotations

import json
import sys

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SERVICE = "inference.GRPCInferenceService"


def main() -> None:
    with grpc.insecure_channel(sys.argv[1]) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        service = pool.FindServiceByName(SERVICE)
        method = service.FindMethodByName("ModelMetadata")
        ask = message_factory.GetMessageClass(method.input_type)
        told = message_factory.GetMessageClass(method.output_type)
        call = channel.unary_unary(
            f"/{SERVICE}/ModelMetadata",
            request_serializer=ask.SerializeToString,
            response_deserializer=told.FromString,
        )
        reply = call(ask(name="pair"), timeout=10)
        seen = {
            "services": sorted(database.get_services()),
            "methods": sorted(method.name for method in service.methods),
            "config_fields": len(pool.FindMessageTypeByName("inference.ModelConfig").fields),
            "health": [m.name for m in pool.FindServiceByName("grpc.health.v1.Health").methods],
            "inputs": [tensor.name for tensor in reply.inputs],
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
