"""Bare servers to compare with: `python -m load.floors KIND REPOSITORY`.

Each does as little as a Python server on its transport can: an echo of the bytes; protobuf's parse
and a reply; the same with ONNX Runtime run in the loop. No checks, queue, deadlines or metrics.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import onnxruntime as ort
import pygrpc_native
import uvloop
from tritonclient.grpc import service_pb2 as pb

from helpers.bad_request import SERVICE
from load.models import Array, model_path, session
from load.work import numpy_type

Answer = Callable[[bytes], bytes]
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def echo(message: bytes) -> bytes:
    """The request itself."""
    return message


def parse(message: bytes) -> bytes:
    """Parses, takes the tensor, and builds the reply."""
    request = pb.ModelInferRequest.FromString(message)
    return reply_of(request, request.raw_input_contents[0], request.inputs[0].shape)


def reply_of(request: pb.ModelInferRequest, raw: bytes, shape: object) -> bytes:
    """A reply with one output."""
    response = pb.ModelInferResponse(model_name=request.model_name, model_version="1")
    response.outputs.add(name="y", datatype=request.inputs[0].datatype, shape=shape)
    response.raw_output_contents.append(raw)
    serialized: bytes = response.SerializeToString()
    return serialized


def computing(repository: Path) -> Answer:
    """Parses, runs the model at once, and builds the reply."""
    sessions: dict[str, ort.InferenceSession] = {}

    def answer(message: bytes) -> bytes:
        request = pb.ModelInferRequest.FromString(message)
        name, (x,) = request.model_name, request.inputs
        if name not in sessions:
            sessions[name] = session(model_path(repository, name))
        values: Array = np.frombuffer(request.raw_input_contents[0], numpy_type(x.datatype))
        y = sessions[name].run(None, {"x": values.reshape(x.shape)})[0]
        return reply_of(request, y.tobytes(), y.shape)

    return answer


async def serve_grpcio(answer: Answer) -> None:
    """grpc.aio with identity (de)serializers."""

    async def infer(message: bytes, _: object) -> bytes:
        return answer(message)

    async def stream(_: object, context: Any) -> None:
        """Reads and writes in two tasks: a fifth less CPU than one that takes turns."""
        answered: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def read() -> None:
            while (message := await context.read()) is not grpc.aio.EOF:
                answered.put_nowait(answer(message))
            answered.put_nowait(None)

        reader = asyncio.create_task(read())
        while (reply := await answered.get()) is not None:
            await context.write(reply)
        await reader

    server = grpc.aio.server(options=UNLIMITED)
    methods: dict[str, Any] = {
        "ModelInfer": grpc.unary_unary_rpc_method_handler(infer),
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(stream),
    }
    handler = grpc.method_handlers_generic_handler(SERVICE.strip("/"), methods)
    server.add_generic_rpc_handlers((handler,))
    print(f"ready {server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    await server.wait_for_termination()


def serve_native(answer: Answer) -> None:
    """pygrpc-native's events, answered one by one."""
    front = pygrpc_native.NativeGrpcFront(
        "127.0.0.1:0", [(f"{SERVICE}ModelInfer", False)], io_threads=1
    )
    print(f"ready {front.bound_port}", flush=True)
    front.start()
    while (events := front.recv_batch(64)) is not None:
        for kind, call_id, _, payload, _ in events:
            if kind == pygrpc_native.EVENT_CALL:
                front.respond(call_id, answer(payload or b""))


def main(kind: str, repository: str) -> None:
    """Serves until it is ended."""
    transport, what = kind.split()
    answer = {"echo": echo, "parse": parse, "ort": computing(Path(repository))}[what]
    if transport == "native":
        serve_native(answer)
    else:
        uvloop.run(serve_grpcio(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
