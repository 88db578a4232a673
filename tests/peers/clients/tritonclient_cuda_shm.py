"""tritonclient's CUDA shared memory, call by call, on GPU 0; prints what came, as JSON.

Takes the server's address; needs cuda-bindings, and torch for what goes by DLPack.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
from typing import Any

import numpy as np
import torch
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.utils.cuda_shared_memory as cuda
from refused import refused

ROOM = 2 << 20
FRAME = np.random.default_rng(1).integers(0, 256, (1, 600_000), np.uint8)
SIZE = FRAME.nbytes


def given(region: str, size: int = SIZE, offset: int = 0) -> Any:
    made = triton.InferInput("x", [1, size], "UINT8")
    made.set_shared_memory(region, size, offset)
    return made


def wanted(region: str, size: int = SIZE, offset: int = 0) -> Any:
    made = triton.InferRequestedOutput("y")
    made.set_shared_memory(region, size, offset)
    return made


def stands(region: Any, frame: Any) -> bool:
    """Whether a frame stands at the beginning of a region."""
    return bool((cuda.get_contents_as_numpy(region, np.uint8, frame.shape) == frame).all())


def both_ways(client: Any, source: Any, result: Any) -> dict[str, Any]:
    """From one region into the other."""
    cuda.set_shared_memory_region(source, [FRAME])
    reply = client.infer("identity_uint8", [given("in")], outputs=[wanted("out")])
    response = reply.get_response()
    return {
        "equal": stands(result, FRAME),
        "raw": [len(raw) for raw in response.raw_output_contents],
        "shape": list(response.outputs[0].shape),
        "region": response.outputs[0].parameters["shared_memory_region"].string_param,
    }


def at_offsets(client: Any, source: Any, result: Any) -> bool:
    """A part of the frame, from an odd place to another; what stands before is left alone."""
    cuda.set_shared_memory_region(result, [np.zeros(SIZE, np.uint8)])
    client.infer("identity_uint8", [given("in", 1001, 333)], outputs=[wanted("out", 5000, 77)])
    got = cuda.get_contents_as_numpy(result, np.uint8, (2000,))
    right = np.zeros(2000, np.uint8)
    right[77 : 77 + 1001] = FRAME[0, 333 : 333 + 1001]
    return bool((got == right).all())


def one_way(client: Any, result: Any) -> list[bool]:
    """In by a region and out in the message; the other way round."""
    out = client.infer("identity_uint8", [given("in")]).as_numpy("y")
    made = triton.InferInput("x", list(FRAME.shape), "UINT8")
    made.set_data_from_numpy(FRAME + np.uint8(2))
    client.infer("identity_uint8", [made], outputs=[wanted("out")])
    return [bool((out == FRAME).all()), stands(result, FRAME + np.uint8(2))]


def streamed(client: Any, source: Any, result: Any) -> list[bool]:
    """The same over a stream."""
    cuda.set_shared_memory_region(source, [FRAME + np.uint8(3)])
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(
        "identity_uint8", [given("in")], outputs=[wanted("out")], request_id="s"
    )
    reply, error = answers.get(timeout=20)
    client.stop_stream()
    is_right = error is None and reply.get_response().id == "s"
    return [is_right, stands(result, FRAME + np.uint8(3))]


async def asynchronous(address: str, source: Any, result: Any) -> bool:
    """By the client for asyncio."""
    cuda.set_shared_memory_region(source, [FRAME + np.uint8(4)])
    async with triton_aio.InferenceServerClient(address) as client:
        await client.infer("identity_uint8", [given("in")], outputs=[wanted("out")])
    return stands(result, FRAME + np.uint8(4))


def by_dlpack(client: Any, source: Any, result: Any) -> bool:
    """A tensor of torch's goes in, and one comes out, without the host."""
    put = torch.from_dlpack(cuda.as_shared_memory_tensor(source, "UINT8", [SIZE]))
    put.copy_(torch.arange(SIZE, device="cuda", dtype=torch.int32).to(torch.uint8))
    torch.cuda.synchronize()  # the server waits for no stream of ours
    client.infer("identity_uint8", [given("in")], outputs=[wanted("out")])
    answer = torch.from_dlpack(cuda.as_shared_memory_tensor(result, "UINT8", [SIZE]))
    return answer.device.type == "cuda" and bool(torch.equal(answer, put))


def errors(client: Any, handle: bytes) -> dict[str, list[str]]:
    """What was wrong → [status, text]."""
    register, infer = client.register_cuda_shared_memory, client.infer
    calls = {
        "twice": lambda: register("in", handle, 0, 8),
        "longer": lambda: register("n", handle, 0, ROOM + 1),
        "elsewhere": lambda: register("n", handle, 99, 8),
        "no handle": lambda: register("n", b"A" * 88, 0, 8),
        "other kind": lambda: client.get_system_shared_memory_status("in"),
        "unknown": lambda: infer("identity_uint8", [given("nothing")]),
        "behind the end": lambda: infer("identity_uint8", [given("in", SIZE, 1 << 62)]),
        "too small": lambda: infer(
            "identity_uint8", [given("in")], outputs=[wanted("out", SIZE - 1)]
        ),
    }
    return refused(calls)


def main() -> None:
    source, result = (cuda.create_shared_memory_region(name, ROOM, 0) for name in ("in", "out"))
    with triton.InferenceServerClient(sys.argv[1]) as client:
        client.unregister_cuda_shared_memory()
        for name, region in (("in", source), ("out", result)):
            client.register_cuda_shared_memory(name, cuda.get_raw_handle(region), 0, ROOM)
        seen = {
            "extensions": list(client.get_server_metadata().extensions),
            "both ways": both_ways(client, source, result),
            "at offsets": at_offsets(client, source, result),
            "one way": one_way(client, result),
            "streamed": streamed(client, source, result),
            "asyncio": asyncio.run(asynchronous(sys.argv[1], source, result)),
            "dlpack": by_dlpack(client, source, result),
            "errors": errors(client, cuda.get_raw_handle(source)),
            "regions": client.get_cuda_shared_memory_status(as_json=True)["regions"],
        }
        client.unregister_cuda_shared_memory("in")
        seen["left"] = sorted(client.get_cuda_shared_memory_status().regions)
        client.unregister_cuda_shared_memory()
        seen["at last"] = sorted(client.get_cuda_shared_memory_status().regions)
    cuda.destroy_shared_memory_region(source)
    cuda.destroy_shared_memory_region(result)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
