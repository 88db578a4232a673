"""A case is a call and what came of it: the status by name, and facts that both servers tell."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

CALL_S = 15.0
Facts = dict[str, object]


class Server:
    """One server under comparison, by both ways to call it.

    Attributes:
        client: tritonclient's.
        stub: Of the same service, for what its client refuses to send.
        payload: What differs by server: file and backend of a model to upload.
    """

    def __init__(self, address: str, payload: dict[str, str]) -> None:
        self.client = triton.InferenceServerClient(address)
        self.channel = grpc.insecure_channel(address)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        self.payload = payload

    def infer(self, request: pb.ModelInferRequest, **options: object) -> pb.ModelInferResponse:
        return self.stub.ModelInfer(request, timeout=CALL_S, **options)

    def close(self) -> None:
        self.client.close()
        self.channel.close()


Case = Callable[[Server], Facts]


class Cases(dict):
    """Cases by name; `@cases("name")` adds one."""

    def __call__(self, name: str) -> Callable[[Case], Case]:
        def add(case: Case) -> Case:
            assert name not in self, name
            self[name] = case
            return case

        return add


def outcome(case: Case, server: Server) -> Facts:
    """What came of a case; a refusal by the client itself has the code CLIENT."""
    try:
        return {"code": "OK", **case(server)}
    except triton.InferenceServerException as error:
        status = error.status()
        code = status.removeprefix("StatusCode.") if status else "CLIENT"
        # A few of its calls pass their error on without the status.
        return {"code": code}
    except grpc.RpcError as error:
        return {"code": error.code().name}


def tensor(name: str, datatype: str, array: np.ndarray) -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def numbers(*shape: int) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def pair(rows: int = 1, **fields: object) -> pb.ModelInferRequest:
    """A right request to `pair`, which gives back what it takes."""
    request = pb.ModelInferRequest(model_name="pair", **fields)
    request.inputs.add(name="a", datatype="FP32", shape=[rows, 4])
    request.inputs.add(name="b", datatype="INT32", shape=[rows, 2])
    request.raw_input_contents.append(numbers(rows, 4).tobytes())
    request.raw_input_contents.append(np.arange(rows * 2, dtype=np.int32).tobytes())
    return request


def told(response: pb.ModelInferResponse) -> Facts:
    """What an answer says, its tensors aside."""
    return {
        "model": [response.model_name, response.model_version, response.id],
        "outputs": [[each.name, each.datatype, list(each.shape)] for each in response.outputs],
        "raw_bytes": [len(each) for each in response.raw_output_contents],
        "parameters": sorted(response.parameters),
    }


def counted(read: Callable[[], dict[str, int]], before: dict[str, int]) -> dict[str, int]:
    """The counts after one more success; Triton counts when its answer is on the way already."""
    end = monotonic() + CALL_S
    while (now := read())["success"] == before["success"] and monotonic() < end:
        pass
    return now
