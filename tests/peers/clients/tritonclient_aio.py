"""tritonclient's asyncio client: every type, and many calls at once; prints what came, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

import numpy as np
import tritonclient.grpc.aio as triton
from dtypes import arrays, as_bf16, bf16_exact, digest


def tensor(name: str, datatype: str, array: np.ndarray) -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


async def identities(client: triton.InferenceServerClient) -> dict[str, list[str]]:
    """Datatype → [digest sent, digest received], all types at once on one connection."""
    exact = bf16_exact()
    sent = arrays() | {"BF16": as_bf16(exact)}
    calls = [
        client.infer(f"identity_{datatype.lower()}", [tensor("x", datatype, array)])
        for datatype, array in sent.items()
    ]
    seen = {}
    for datatype, result in zip(sent, await asyncio.gather(*calls), strict=True):
        got = result.as_numpy("y")
        if datatype == "BF16":
            seen[datatype] = [digest(exact), digest(got.astype(np.float32))]
        else:
            seen[datatype] = [digest(sent[datatype]), digest(got)]
    return seen


async def many(client: triton.InferenceServerClient) -> list[bool]:
    """64 calls at once, each of another size; whether each answer equals its own input."""
    inputs = [np.full((1, 1 + 100 * index), index, np.int32) for index in range(64)]
    calls = [
        client.infer("identity_int32", [tensor("x", "INT32", array)], client_timeout=20)
        for array in inputs
    ]
    results = await asyncio.gather(*calls)
    return [
        bool(np.array_equal(result.as_numpy("y"), array))
        for result, array in zip(results, inputs, strict=True)
    ]


async def main() -> None:
    async with triton.InferenceServerClient(sys.argv[1]) as client:
        seen = {
            "ready": await client.is_server_ready(),
            "metadata": await client.get_model_metadata("pair", as_json=True),
            "identities": await identities(client),
            "many": await many(client),
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main())
