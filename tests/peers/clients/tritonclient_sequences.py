"""tritonclient's sequences, sync, asyncio and on a stream, unmodified; prints the sums, as JSON."""

from __future__ import annotations

import asyncio
import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

NUMBERS = [1.0, 2.0, 3.0, 4.0]


def part(place: int, sequence_id: int | str) -> dict[str, Any]:
    """What says which part of which sequence a request is."""
    return {
        "sequence_id": sequence_id,
        "sequence_start": place == 0,
        "sequence_end": place == len(NUMBERS) - 1,
    }


def inputs(number: float) -> list[Any]:
    made = triton.InferInput("x", [1, 4], "FP32")
    made.set_data_from_numpy(np.full((1, 4), number, np.float32))
    return [made]


def first(result: Any) -> float:
    return float(result.as_numpy("y")[0, 0])


def sync(client: triton.InferenceServerClient, sequence_id: int | str) -> list[float]:
    return [
        first(client.infer("carries", inputs(number), **part(place, sequence_id)))
        for place, number in enumerate(NUMBERS)
    ]


def stream(client: triton.InferenceServerClient, sequence_id: int | str) -> list[float]:
    """All sent before any is answered."""
    came: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: came.put((result, error)))
    for place, number in enumerate(NUMBERS):
        client.async_stream_infer("carries", inputs(number), **part(place, sequence_id))
    sums = []
    for _ in NUMBERS:
        result, error = came.get(timeout=20)
        assert error is None, error
        sums.append(first(result))
    client.stop_stream()
    return sums


async def asynchronous(address: str, ids: list[int | str]) -> list[list[float]]:
    """Several sequences at once."""
    async with triton_aio.InferenceServerClient(address) as client:

        async def one(sequence_id: int | str) -> list[float]:
            return [
                first(await client.infer("carries", inputs(number), **part(place, sequence_id)))
                for place, number in enumerate(NUMBERS)
            ]

        return list(await asyncio.gather(*map(one, ids)))


def main() -> None:
    address = sys.argv[1]
    with triton.InferenceServerClient(address) as client:
        seen = {
            "number": sync(client, 7),
            "large": sync(client, 2**63 - 1),
            "text": sync(client, "camera 7"),
            "stream": stream(client, 8),
            "text stream": stream(client, "camera 8"),
        }
        try:
            client.infer("carries", inputs(1.0), sequence_id=99)
        except triton.InferenceServerException as error:
            seen["unstarted"] = [str(error.status()), error.message()]
    seen["asyncio"] = asyncio.run(asynchronous(address, [1, 2, "1", "two"]))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
