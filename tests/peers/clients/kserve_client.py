"""kserve's InferenceGRPCClient, with raw and with typed contents; prints what came, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

import grpc
import numpy as np
from dtypes import arrays, digest
from kserve import InferenceGRPCClient, InferInput, InferRequest


async def answer(
    client: InferenceGRPCClient, datatype: str, array: np.ndarray, *, raw: bool
) -> np.ndarray:
    tensor = InferInput("x", list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=raw)
    request = InferRequest(f"identity_{datatype.lower()}", [tensor], request_id="k")
    response = await client.infer(request)
    assert response.id == "k", response.id
    return response.outputs[0].as_numpy()


async def identities(client: InferenceGRPCClient, *, raw: bool) -> dict[str, list[str]]:
    """Datatype → [digest sent, digest received]."""
    seen = {}
    sent = arrays()
    if not raw:
        del sent["FP16"]  # the protocol has no typed field for it
        sent["BYTES"] = np.array([[b"a", "ü".encode()], [b"", b"dd"]], np.object_)  # UTF-8 only
    for datatype, array in sent.items():
        got = await answer(client, datatype, array, raw=raw)
        seen[datatype] = [digest(array), digest(got)]
    return seen


async def main() -> None:
    async with InferenceGRPCClient(sys.argv[1]) as client:
        try:
            await client.infer(InferRequest("nothing", [InferInput("x", [1], "FP32", data=[1.0])]))
            unknown = "answered"
        except grpc.RpcError as error:
            unknown = error.code().name
        seen = {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model_ready": await client.is_model_ready("mlp"),
            "raw": await identities(client, raw=True),
            "typed": await identities(client, raw=False),
            "unknown": unknown,
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main())
