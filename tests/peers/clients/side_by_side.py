"""headrace_client, tritonclient and kserve in one process, imported in the order of the arguments.

tritonclient and kserve each put a package `inference` into protobuf's default pool, so the later of
those two fails to import, whoever else is there. Who could be imported is asked for an answer; what
came of each is printed, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np

ANSWERED = "answered"


def ask_headrace(address: str, x: np.ndarray) -> np.ndarray:
    from headrace_client import Client

    with Client(address) as client:
        return client.infer("identity_fp32", {"x": x})["y"]


def ask_triton(address: str, x: np.ndarray) -> np.ndarray:
    import tritonclient.grpc as triton

    with triton.InferenceServerClient(address) as client:
        tensor = triton.InferInput("x", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        return client.infer("identity_fp32", [tensor]).as_numpy("y")


def ask_kserve(address: str, x: np.ndarray) -> np.ndarray:
    import asyncio

    from kserve import InferenceGRPCClient, InferInput, InferRequest

    async def ask() -> np.ndarray:
        async with InferenceGRPCClient(address) as client:
            tensor = InferInput("x", list(x.shape), "FP32")
            tensor.set_data_from_numpy(x)
            answer = await client.infer(InferRequest("identity_fp32", [tensor]))
            return answer.outputs[0].as_numpy()

    return asyncio.run(ask())


ASK = {"headrace_client": ask_headrace, "tritonclient.grpc": ask_triton, "kserve": ask_kserve}


def main() -> None:
    address, *names = sys.argv[1:]
    came = {}
    for name in names:
        try:
            importlib.import_module(name)
            came[name] = "imported"
        except TypeError as error:
            came[name] = str(error)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name in names:
        if came[name] == "imported" and np.array_equal(ASK[name](address, x), x):
            came[name] = ANSWERED
    print(json.dumps(came))


if __name__ == "__main__":
    main()
