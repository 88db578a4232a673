"""Wrong requests below and beside ModelInfer: broken protobuf, shared memory, the other calls."""

from __future__ import annotations

from typing import Any

from tritonclient.grpc import service_pb2 as pb

from helpers.bad_request import INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, Bad
from helpers.bad_settings import wrong_settings
from helpers.messages import GOOD, B, a, b, pair


def shared_memory() -> list[Bad]:
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 16}
    text = "Client shared memory is disabled"

    def ask(name: str, message: bytes) -> Bad:
        return Bad(name, UNIMPLEMENTED, text, message)

    register = pb.SystemSharedMemoryRegisterRequest(name="r", key="/secret", byte_size=64)
    cuda = pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=bytes(64), byte_size=64)
    return [
        ask("input in shared memory", pair([a(parameters=region), b()], [B])),
        ask("input in shared memory and raw", pair([a(parameters=region), b()])),
        ask("output in shared memory", pair(outputs=["p"], output_parameters=region)),
        Bad(
            "shared memory registered",
            UNIMPLEMENTED,
            text,
            register.SerializeToString(),
            "SystemSharedMemoryRegister",
        ),
        Bad(
            "CUDA memory registered",
            UNIMPLEMENTED,
            text,
            cuda.SerializeToString(),
            "CudaSharedMemoryRegister",
        ),
    ]


def broken_messages() -> list[Bad]:
    name = b"\x0a\x04pair"
    broken = {
        "garbage": bytes(range(255, 0, -1)),
        "cut in the tensors": GOOD[:-3],
        "cut in the head": GOOD[:9],
        "cut in a length": name + b"\x3a",
        "a length of 2 GiB": name + b"\x3a\xff\xff\xff\xff\x07" + bytes(64),
        "a length of 2^63": name + b"\x3a" + b"\xff" * 9 + b"\x01" + bytes(64),
        "a varint of eleven bytes": name + b"\x3a" + b"\xff" * 10 + b"\x01",
        "an end of group": name + b"\x0c",
        "a group without end": name + b"\x0b\x08\x01",
        "wire type 7": name + b"\x3f\x01",
        "wire type 6": name + b"\x3e\x01",
        "field number zero": name + b"\x02\x01x",
        "a model name not in UTF-8": b"\x0a\x02\xff\xfe" + GOOD[6:],
        "an id not in UTF-8": GOOD + b"\x1a\x02\xff\xfe",
        "an input cut within": name + b"\x2a\x03\x0a\x05a",
        "a shape cut within": name + b"\x2a\x03\x1a\x05\x80",
    }
    return [
        Bad(f"message: {what}", INVALID_ARGUMENT, "", message) for what, message in broken.items()
    ] + [
        Bad(
            f"message of {method}",
            INVALID_ARGUMENT,
            "protobuf cannot parse it",
            b"\xff\xff",
            method,
        )
        for method in ("ModelMetadata", "RepositoryIndex", "/grpc.health.v1.Health/Check")
    ]


def other_calls() -> list[Bad]:
    def ask(method: str, code: int, text: str, message: Any) -> Bad:
        return Bad(f"{method}, {text or code}", code, text, message.SerializeToString(), method)

    here = "repository"
    return [
        ask("ModelMetadata", NOT_FOUND, "'nothing'", pb.ModelMetadataRequest(name="nothing")),
        ask("ModelConfig", NOT_FOUND, "'nothing'", pb.ModelConfigRequest(name="nothing")),
        ask("ModelStatistics", NOT_FOUND, "'nothing'", pb.ModelStatisticsRequest(name="nothing")),
        ask(
            "ModelMetadata",
            INVALID_ARGUMENT,
            "version",
            pb.ModelMetadataRequest(name="pair", version="x"),
        ),
        ask("RepositoryIndex", UNIMPLEMENTED, here, pb.RepositoryIndexRequest(repository_name="r")),
        *wrong_settings(),
        Bad("method unknown", UNIMPLEMENTED, "", GOOD, "ModelGuess"),
        Bad("service unknown", UNIMPLEMENTED, "", GOOD, "/inference.Nobody/ModelInfer"),
        Bad("path without a method", UNIMPLEMENTED, "", GOOD, "/"),
    ]
