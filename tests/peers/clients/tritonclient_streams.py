"""tritonclient's streaming calls, sync and asyncio, unmodified; prints what came, as JSON."""

from __future__ import annotations

import asyncio
import json
import queue
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

NUM_MESSAGES = 500
Answers = queue.Queue[tuple[Any, Any]]


def inputs(value: float, model_input: str = "x") -> list[triton.InferInput]:
    """One row for the identity model."""
    made = triton.InferInput(model_input, [1, 16], "FP32")
    made.set_data_from_numpy(np.full((1, 16), value, np.float32))
    return [made]


def shown(result: Any, error: Any) -> list[Any]:
    """[id, first number, whether it is the last] of a result, or [status, text] of an error."""
    if error is not None:
        return [str(error.status()), error.message()]
    response = result.get_response()
    is_last = response.parameters["triton_final_response"].bool_param
    return [response.id, float(result.as_numpy("y")[0, 0]), is_last]


def streamed(
    address: str, ask: Callable[[Any], int], *, headers: dict[str, str] | None = None, **more: Any
) -> list[list[Any]]:
    """What the callback of one stream got; `ask` sends, and says how many answers to wait for."""
    answers: Answers = queue.Queue()
    with triton.InferenceServerClient(address) as client:
        client.start_stream(
            lambda result, error: answers.put((result, error)), headers=headers, **more
        )
        seen = [shown(*answers.get(timeout=20)) for _ in range(ask(client))]
        client.stop_stream()
    return seen


def many(client: Any) -> int:
    """So many requests, as fast as the client sends them."""
    for index in range(NUM_MESSAGES):
        client.async_stream_infer(
            "identity_fp32",
            inputs(index),
            request_id=str(index),
            enable_empty_final_response=True,
        )
    return NUM_MESSAGES


def with_errors(client: Any) -> int:
    """A good one, an unknown model, a wrong input, a good one."""
    for model, name in (
        ("identity_fp32", "x"),
        ("nothing", "x"),
        ("identity_fp32", "y"),
        ("identity_fp32", "x"),
    ):
        client.async_stream_infer(model, inputs(1, name), request_id=model)
    return 4


def until_error(client: Any) -> int:
    """A good one, then one whose error ends the stream."""
    client.async_stream_infer("identity_fp32", inputs(7), request_id="7")
    client.async_stream_infer("nothing", inputs(8), request_id="8")
    return 2


def past_deadline(client: Any) -> int:
    """The stream's time is over before anything is asked of it."""
    return 1


async def asyncio_many(address: str) -> list[list[Any]]:
    """The asyncio client's `stream_infer`."""

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for index in range(NUM_MESSAGES):
            yield {
                "model_name": "identity_fp32",
                "inputs": inputs(index),
                "request_id": str(index),
            }

    async with triton_aio.InferenceServerClient(address) as client:
        return [shown(*pair) async for pair in client.stream_infer(requests())]


def main() -> None:
    address = sys.argv[1]
    seen = {
        "many": streamed(address, many),
        "errors": streamed(address, with_errors),
        "strict": streamed(address, until_error, headers={"triton_grpc_error": "true"}),
        "deadline": streamed(address, past_deadline, stream_timeout=0.5),
        "gzip": streamed(address, many, compression_algorithm="gzip"),
        "asyncio": asyncio.run(asyncio_many(address)),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
