"""tritonclient's system shared memory, call by call; prints what came, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.utils.shared_memory as shm
from refused import refused
from tritonclient.utils import serialize_byte_tensor

KEY = f"/headrace_test_{os.getpid()}"
FRAME = np.arange(16 * 64, dtype=np.float32).reshape(4, 256)
SIZE = FRAME.nbytes


def given(region: str, size: int, offset: int, name: str = "x", datatype: str = "FP32") -> Any:
    shape = [1, 2] if datatype == "BYTES" else list(FRAME.shape)
    made = triton.InferInput(name, shape, datatype)
    made.set_shared_memory(region, size, offset)
    return made


def wanted(region: str, size: int, offset: int = 0) -> Any:
    made = triton.InferRequestedOutput("y")
    made.set_shared_memory(region, size, offset)
    return made


def frame(client: Any, source: Any, result: Any) -> dict[str, Any]:
    """One frame from one region into another, at offsets."""
    shm.set_shared_memory_region(source, [FRAME], offset=64)
    reply = client.infer(
        "identity_fp32", [given("in", SIZE, 64)], outputs=[wanted("out", SIZE + 100, 128)]
    )
    got = shm.get_contents_as_numpy(result, np.float32, FRAME.shape, offset=128)
    response = reply.get_response()
    return {
        "equal": bool((got == FRAME).all()),
        "before": bytes(shm.get_contents_as_numpy(result, np.uint8, [128])).hex(),
        "raw": [len(raw) for raw in response.raw_output_contents],
        "shape": list(response.outputs[0].shape),
        "size": response.outputs[0].parameters["shared_memory_byte_size"].int64_param,
        "region": response.outputs[0].parameters["shared_memory_region"].string_param,
    }


def one_way(client: Any, source: Any, result: Any) -> list[bool]:
    """In by shared memory and out in the message; the other way round."""
    shm.set_shared_memory_region(source, [FRAME + 1], offset=64)
    out = client.infer("identity_fp32", [given("in", SIZE, 64)]).as_numpy("y")
    made = triton.InferInput("x", list(FRAME.shape), "FP32")
    made.set_data_from_numpy(FRAME + 2)
    client.infer("identity_fp32", [made], outputs=[wanted("out", SIZE)])
    got = shm.get_contents_as_numpy(result, np.float32, FRAME.shape)
    return [bool((out == FRAME + 1).all()), bool((got == FRAME + 2).all())]


def texts(client: Any, source: Any, result: Any) -> list[list[str]]:
    """BYTES, whose size is known when they are there."""
    seen = []
    for words in (["a", "longer"], ["", "b" * 50]):
        array = np.array([[word.encode() for word in words]], dtype=np.object_)
        packed = serialize_byte_tensor(array)
        shm.set_shared_memory_region(source, [packed])
        size = len(packed.item())
        client.infer(
            "identity_bytes", [given("in", size, 0, datatype="BYTES")], outputs=[wanted("out", 500)]
        )
        got = shm.get_contents_as_numpy(result, np.object_, [1, 2])
        seen.append([word.decode() for word in got[0]])
    return seen


def streamed(client: Any, result: Any) -> list[bool]:
    """The same over a stream."""
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(
        "identity_fp32", [given("in", SIZE, 64)], outputs=[wanted("out", SIZE)], request_id="s"
    )
    reply, error = answers.get(timeout=20)
    client.stop_stream()
    got = shm.get_contents_as_numpy(result, np.float32, FRAME.shape)
    return [error is None and reply.get_response().id == "s", bool((got == FRAME + 1).all())]


async def asynchronous(address: str) -> dict[str, Any]:
    async with triton_aio.InferenceServerClient(address) as client:
        await client.infer("identity_fp32", [given("in", SIZE, 64)])
        return dict(await client.get_system_shared_memory_status(as_json=True))


def errors(client: Any) -> dict[str, list[str]]:
    """What was wrong → [status, text]."""
    infer = client.infer
    calls = {
        "twice": lambda: client.register_system_shared_memory("in", KEY, 8),
        "no such key": lambda: client.register_system_shared_memory("n", "/no-such-key", 8),
        "too long": lambda: client.register_system_shared_memory("n", KEY, 1 << 40),
        "unknown": lambda: infer("identity_fp32", [given("nothing", SIZE, 0)]),
        "behind the end": lambda: infer("identity_fp32", [given("in", SIZE, 1 << 62)]),
        "too small": lambda: infer(
            "identity_fp32", [given("in", SIZE, 0)], outputs=[wanted("out", SIZE - 1)]
        ),
        "wrong size": lambda: infer("identity_fp32", [given("in", SIZE - 4, 0)]),
        "status": lambda: client.get_system_shared_memory_status("nothing"),
        "cuda": lambda: client.register_cuda_shared_memory("c", b"AAAA", 0, 8),
    }
    return refused(calls)


def main() -> None:
    source = shm.create_shared_memory_region("in", f"{KEY}_in", 8192)
    result = shm.create_shared_memory_region("out", f"{KEY}_out", 8192)
    with triton.InferenceServerClient(sys.argv[1]) as client:
        client.unregister_system_shared_memory()
        client.unregister_cuda_shared_memory()
        client.register_system_shared_memory("in", f"{KEY}_in", 8192)
        client.register_system_shared_memory("out", f"{KEY}_out", 8000, offset=0)
        seen = {
            "extensions": list(client.get_server_metadata().extensions),
            "frame": frame(client, source, result),
            "one way": one_way(client, source, result),
            "streamed": streamed(client, result),
            "asyncio": asyncio.run(asynchronous(sys.argv[1])),
            "texts": texts(client, source, result),
            "errors": errors(client),
            "cuda": client.get_cuda_shared_memory_status(as_json=True),
        }
        client.unregister_system_shared_memory("in")
        seen["left"] = sorted(client.get_system_shared_memory_status().regions)
        client.unregister_system_shared_memory()
        seen["at last"] = sorted(client.get_system_shared_memory_status().regions)
    shm.destroy_shared_memory_region(source)
    shm.destroy_shared_memory_region(result)
    print(json.dumps({**seen, "key": KEY}))


if __name__ == "__main__":
    main()
