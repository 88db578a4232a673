"""tritonclient's synchronous client, call by call; prints what came, as JSON."""

from __future__ import annotations

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from dtypes import arrays, as_bf16, bf16_exact, digest
from refused import refused


def tensor(name: str, datatype: str, array: np.ndarray) -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def identities(client: triton.InferenceServerClient) -> dict[str, list[str]]:
    """Datatype → [digest sent, digest received]."""
    seen = {}
    for datatype, array in arrays().items():
        result = client.infer(f"identity_{datatype.lower()}", [tensor("x", datatype, array)])
        seen[datatype] = [digest(array), digest(result.as_numpy("y"))]
    exact = bf16_exact()
    result = client.infer("identity_bf16", [tensor("x", "BF16", as_bf16(exact))])
    seen["BF16"] = [digest(exact), digest(result.as_numpy("y").astype(np.float32))]
    return seen


def options(client: triton.InferenceServerClient) -> dict[str, object]:
    """One request with everything that a request can carry, and the outputs in another order."""
    a, b = np.ones((2, 4), np.float32), np.arange(4, dtype=np.int32).reshape(2, 2)
    result = client.infer(
        "pair",
        [tensor("b", "INT32", b), tensor("a", "FP32", a)],
        model_version="1",
        outputs=[triton.InferRequestedOutput("q"), triton.InferRequestedOutput("p")],
        request_id="my id",
        priority=1,
        timeout=9_000_000,
        client_timeout=5,
        headers={"x-trace": "7"},
        compression_algorithm="gzip",
        parameters={"text": "t", "whole": 3, "flag": True},
    )
    response = result.get_response()
    return {
        "id": response.id,
        "version": response.model_version,
        "outputs": [output.name for output in response.outputs],
        "equal": bool((result.as_numpy("p") == a).all() and (result.as_numpy("q") == b).all()),
    }


def asynchronous(client: triton.InferenceServerClient) -> list[bool]:
    """Eight calls at once through callbacks; whether each answer equals its own input."""
    answers: queue.Queue[tuple[int, object, object]] = queue.Queue()
    inputs = [np.full((1, 16), index, np.float32) for index in range(8)]
    for index, array in enumerate(inputs):
        client.async_infer(
            "identity_fp32",
            [tensor("x", "FP32", array)],
            lambda result, error, index=index: answers.put((index, result, error)),
        )
    equal = [False] * len(inputs)
    for _ in inputs:
        index, result, error = answers.get(timeout=10)
        equal[index] = error is None and bool((result.as_numpy("y") == inputs[index]).all())
    return equal


def errors(client: triton.InferenceServerClient) -> dict[str, list[str]]:
    """What was wrong → [status, text]."""
    good = tensor("x", "FP32", np.zeros((1, 16), np.float32))
    wrong = tensor("x", "FP64", np.zeros((1, 16), np.float64))
    calls = {
        "model": lambda: client.infer("nothing", [good]),
        "version": lambda: client.infer("identity_fp32", [good], model_version="7"),
        "dtype": lambda: client.infer("identity_fp32", [wrong]),
        "shared_memory": lambda: client.register_system_shared_memory("region", "/key", 64),
    }
    return refused(calls)


def settings(client: triton.InferenceServerClient) -> dict[str, object]:
    """The settings of log and trace, before and after a change that changes nothing."""
    log, trace = client.get_log_settings(as_json=True), client.get_trace_settings(as_json=True)
    client.update_trace_settings(settings={"trace_level": "OFF", "trace_rate": None})
    return {
        "log": log["settings"],
        "trace": trace["settings"],
        "equal": client.update_log_settings({"log_info": True}, as_json=True) == log
        and client.get_trace_settings("mlp", as_json=True) == trace,
    }


def main() -> None:
    with triton.InferenceServerClient(sys.argv[1]) as client:
        client.unregister_system_shared_memory()
        client.unregister_cuda_shared_memory()
        seen = {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "model_ready": [client.is_model_ready(name) for name in ("mlp", "nothing")],
            "server": client.get_server_metadata(as_json=True),
            "metadata": client.get_model_metadata("mlp", as_json=True),
            "config": client.get_model_config("mlp", as_json=True)["config"],
            "index": client.get_model_repository_index(as_json=True)["models"],
            "identities": identities(client),
            "options": options(client),
            "asynchronous": asynchronous(client),
            "errors": errors(client),
            "settings": settings(client),
            "statistics": client.get_inference_statistics("pair", as_json=True)["model_stats"],
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
