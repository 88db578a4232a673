"""ModelStreamInfer: what comes, in which order, and how a stream ends."""

from __future__ import annotations

import queue

import grpc
import tritonclient.grpc as triton
from outcome import CALL_S, Cases, Facts, Server, numbers, pair, tensor
from tritonclient.grpc import service_pb2 as pb

cases = Cases()
_EMPTY_FINAL = "triton_enable_empty_final_response"
_STRICT = (("triton_grpc_error", "true"),)


def _stream(server: Server, *requests: pb.ModelInferRequest, **options: object) -> Facts:
    """All answers to some requests, and the status at the end."""
    seen, code = [], "OK"
    try:
        for answer in server.stub.ModelStreamInfer(iter(requests), timeout=CALL_S, **options):
            response = answer.infer_response
            seen.append(
                {
                    "id": response.id,
                    "failed": bool(answer.error_message),
                    "outputs": [each.name for each in response.outputs],
                    "final": response.parameters["triton_final_response"].bool_param
                    if "triton_final_response" in response.parameters
                    else None,
                }
            )
    except grpc.RpcError as error:
        code = error.code().name
    return {"code": code, "answers": seen}


@cases("stream of three")
def _three(server: Server) -> Facts:
    return _stream(server, *(pair(id=str(number)) for number in range(3)))


@cases("stream of none")
def _none(server: Server) -> Facts:
    return _stream(server)


@cases("stream with an empty final response asked for")
def _empty_final(server: Server) -> Facts:
    request = pair(id="7")
    request.parameters[_EMPTY_FINAL].bool_param = True
    return _stream(server, request)


def _wrong(what: str) -> pb.ModelInferRequest:
    request = pair(id="wrong")
    if what == "model":
        request.model_name = "nothing"
    elif what == "output":
        request.outputs.add(name="z")
    elif what == "shape":
        request.inputs[0].shape[1] = 5
    else:
        request.model_version = "one"
    return request


for _what in ("model", "version", "output", "shape"):

    @cases(f"stream with a wrong {_what} between two that are right")
    def _between(server: Server, what: str = _what) -> Facts:
        return _stream(server, pair(id="1"), _wrong(what), pair(id="2"))

    @cases(f"stream by statuses with a wrong {_what} at its end")
    def _by_status(server: Server, what: str = _what) -> Facts:
        return _stream(server, _wrong(what), metadata=_STRICT)


@cases("stream by statuses that is right")
def _strict(server: Server) -> Facts:
    return _stream(server, pair(id="1"), metadata=_STRICT)


def _failing() -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="failing", id="7")
    request.inputs.add(name="x", datatype="INT64", shape=[1, 1])
    request.raw_input_contents.append((99).to_bytes(8, "little"))
    return request


@cases("stream to a model that fails")
def _fails(server: Server) -> Facts:
    return _stream(server, _failing(), pair(id="8"))


@cases("stream by statuses to a model that fails")
def _fails_by_status(server: Server) -> Facts:
    return _stream(server, _failing(), metadata=_STRICT)


@cases("stream by the client")
def _by_the_client(server: Server) -> Facts:
    answers: queue.Queue[tuple[object, object]] = queue.Queue()
    server.client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        for number in range(2):
            x = tensor("x", "FP32", numbers(2, 3))
            server.client.async_stream_infer("whole", [x], request_id=str(number))
        seen = [answers.get(timeout=CALL_S) for _ in range(2)]
    finally:
        server.client.stop_stream()
    assert all(error is None for _, error in seen), seen
    same = [bool((result.as_numpy("y") == numbers(2, 3)).all()) for result, _ in seen]
    return {"ids": [result.get_response().id for result, _ in seen], "same": same}


@cases("stream by the client with an error")
def _error_by_the_client(server: Server) -> Facts:
    answers: queue.Queue[tuple[object, object]] = queue.Queue()
    server.client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        server.client.async_stream_infer("nothing", [tensor("x", "FP32", numbers(2, 3))])
        result, error = answers.get(timeout=CALL_S)
    finally:
        server.client.stop_stream()
    assert isinstance(error, triton.InferenceServerException)
    return {"result": result is not None, "status": str(error.status())}
