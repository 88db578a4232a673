"""ModelInfer over a socket: what comes back is what ONNX Runtime says of what was sent."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

from helpers.messages import infer, tensor
from helpers.ort_rig import array_of, raw_of
from helpers.rpc_client import RpcClient, arrays, infer_message, slow_message, told
from load.models import DTYPES, random_array

Code = grpc.StatusCode

CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def sample(datatype: str) -> Any:
    """Some (3, 4) values of a type; ONNX strings are UTF-8."""
    if datatype != "BYTES":
        return random_array(datatype, (3, 4), 5)
    words = [b"", b"a", "größe".encode(), b"x" * 300] * 3
    array = np.empty(len(words), object)
    array[:] = words
    return array.reshape(3, 4)


def is_same(one: Any, other: Any) -> bool:
    if one.dtype == object:
        return bool(one.shape == other.shape and (one == other).all())
    return bool(one.shape == other.shape and one.tobytes() == other.tobytes())


def identity_message(datatype: str, array: Any) -> bytes:
    tensors = [tensor("x", datatype, array.shape)]
    return infer(f"identity_{datatype.lower()}", tensors, [raw_of(array)])


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_raw(client: RpcClient, datatype: str) -> None:
    """Bit for bit, NaNs and all."""
    sent = sample(datatype)
    response = client.start(identity_message(datatype, sent)).result()
    (output,) = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("y", datatype, [3, 4])
    assert is_same(arrays(response)["y"], sent)


@pytest.mark.parametrize("datatype", CONTENTS)
def test_every_datatype_typed(client: RpcClient, datatype: str) -> None:
    """Values in the typed fields give the same; the answer is raw."""
    sent = sample(datatype)
    contents = {CONTENTS[datatype]: sent.ravel().tolist()}
    tensors = [tensor("x", datatype, sent.shape, contents=contents)]
    response = client.start(infer(f"identity_{datatype.lower()}", tensors)).result()
    assert is_same(arrays(response)["y"], sent)


@pytest.mark.parametrize("shape", [(1, 1), (4, 0), (4, 1000)], ids=str)
def test_sizes(client: RpcClient, shape: tuple[int, ...]) -> None:
    """One element, none, and thousands."""
    sent = random_array("FP32", shape, 2)
    assert is_same(client.infer("identity_fp32", {"x": sent})["y"], sent)


A: Any = np.array([[1.5, -2], [3, 4]], np.float32)
B: Any = np.array([[1, 2, 3], [4, 5, -6]], np.int64)
C: Any = np.array([[b"one"], [b""]], object)
RIGHT = {"p": A + A, "q": -B, "r": C}


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_inputs_in_any_order(client: RpcClient, order: str) -> None:
    """Each is found by its name, with its own raw bytes."""
    values = {"a": A, "b": B, "c": C}
    answer = client.infer("three", {name: values[name] for name in order})
    assert list(answer) == ["p", "q", "r"]
    assert all(is_same(answer[name], RIGHT[name]) for name in RIGHT)


@pytest.mark.parametrize("wanted", ["p", "rq", "rqp", "qpr"])
def test_outputs_in_the_order_asked_for(client: RpcClient, wanted: str) -> None:
    """Names and raw contents agree by position, which clients rely on."""
    answer = client.infer("three", {"a": A, "b": B, "c": C}, outputs=list(wanted))
    assert list(answer) == list(wanted)
    assert all(is_same(answer[name], RIGHT[name]) for name in wanted)


def test_a_configuration_in_another_order(client: RpcClient) -> None:
    """The model's inputs are a, b; config.pbtxt lists b, a and outputs q, p."""
    metadata = client.ask("ModelMetadata", name="turned")
    assert [output.name for output in metadata.outputs] == ["q", "p"]
    for inputs in ({"a": A, "b": B}, {"b": B, "a": A}):
        answer = client.infer("turned", inputs)
        assert list(answer) == ["q", "p"]
        assert all(is_same(answer[name], RIGHT[name]) for name in "qp")


def test_reshape(client: RpcClient) -> None:
    """Clients see [-1, 1] where the model has [-1]."""
    sent = np.array([[1], [2], [3]], np.float32)
    assert is_same(client.infer("reshaped", {"x": sent})["y"], -sent)


def test_shapes_that_only_the_run_can_tell(client: RpcClient) -> None:
    """Each answer has its own."""
    for values in ([0, 1, 1], [0, 0], [5, 0, 0, 0, 5, 5]):
        sent = np.array(values, np.float32)
        found = client.infer("places", {"x": sent})["y"]
        assert is_same(found, np.array([np.flatnonzero(sent)]))


@pytest.mark.parametrize("request_id", ["", "7", "größe", "i" * 2000])
def test_ids_are_echoed(client: RpcClient, request_id: str) -> None:
    """As they were given."""
    message = infer_message("versions", {"x": np.zeros((1, 4), np.float32)}, request_id=request_id)
    assert client.start(message).result().id == request_id


@pytest.mark.parametrize(("version", "answers"), [("", 10), ("1", 1), ("2", 2), ("10", 10)])
def test_versions(client: RpcClient, version: str, answers: int) -> None:
    """The one asked for answers and says its number; none means the newest by number."""
    message = infer_message("versions", {"x": np.zeros((2, 4), np.float32)}, version=version)
    response = client.start(message).result()
    assert (response.model_name, response.model_version) == ("versions", str(answers))
    assert is_same(arrays(response)["y"], np.full((2, 4), answers, np.float32))


def test_parameters_that_steer_nothing_here(client: RpcClient) -> None:
    """What clients send along is taken: sequences, priorities, timeouts, their own."""
    parameters: dict[str, bool | int | float | str | bytes | None] = {
        "sequence_id": 7,
        "sequence_start": True,
        "sequence_end": False,
        "priority": (3).to_bytes(8, "little"),
        "timeout": 1_000_000,
        "triton_enable_empty_final_response": True,
        "mine": "yours",
        "ratio": 0.5,
    }
    sent = random_array("FP32", (1, 4), 1)
    answer = client.infer("versions", {"x": sent}, version="1", parameters=parameters)
    assert is_same(answer["y"], sent + np.float32(1))


def test_a_run_that_fails_is_told_and_hurts_nobody(client: RpcClient) -> None:
    """INTERNAL with the runtime's reason; the next request to the same model is answered."""
    for _ in range(2):
        code, text = told(client.start(infer_message("picks", {"i": np.array([[9]])})))
        assert code is Code.INTERNAL
        assert "ONNX Runtime failed" in text
        assert "idx=9" in text
        answer = client.infer("picks", {"i": np.array([[3], [1]])})
        assert answer["y"].ravel().tolist() == [30.0, 10.0]


def test_bytes_that_are_no_text_are_the_caller_s_fault(client: RpcClient) -> None:
    """ONNX strings are UTF-8; what is not is refused by the run as INVALID_ARGUMENT."""
    sent = np.array([[b"\xff"]], object)
    code, text = told(client.start(identity_message("BYTES", sent)))
    assert (code, "not UTF-8" in text) == (Code.INVALID_ARGUMENT, True)


def test_many_at_once_get_their_own_answers(client: RpcClient) -> None:
    """Two hundred requests of different sizes and models on one connection."""
    sent = [random_array("FP32", (1 + i % 4, 1 + i % 7), i) for i in range(200)]
    calls = [
        client.start(infer_message("identity_fp32", {"x": x}, request_id=str(i)))
        for i, x in enumerate(sent)
    ]
    for i, (call, x) in enumerate(zip(calls, sent, strict=True)):
        response = call.result()
        assert response.id == str(i)
        assert is_same(arrays(response)["y"], x)


def test_a_slow_model_holds_no_other_up(client: RpcClient) -> None:
    """While one model computes, requests to another are answered."""
    busy = [client.start(slow_message(2500)) for _ in range(3)]
    for index in range(20):
        sent = np.full((1, 4), index, np.float32)
        answer = client.infer("versions", {"x": sent}, version="1")
        assert is_same(answer["y"], sent + np.float32(1))
    assert not busy[2].done()
    assert [arrays(call.result())["y"].tolist() for call in busy] == [[1.0]] * 3


def test_a_reply_over_the_limit(servers: Any, small_repository: Any, transport: str) -> None:
    """It is refused by us with a text, whichever transport would have to send it."""
    limit = ("--grpc-max-response-bytes", "1024")
    server = servers.get("--model-repository", small_repository, "--transport", transport, *limit)
    with RpcClient(server.address) as client:
        fits = np.zeros((1, 200), np.float32)
        assert is_same(client.infer("identity_fp32", {"x": fits})["y"], fits)
        for width in (230, 251, 256, 1000):  # 251: the tensor fits, the message does not
            x = np.zeros((1, width), np.float32)
            code, text = told(client.start(infer_message("identity_fp32", {"x": x})))
            if code is not Code.OK:
                assert (code, "the limit is 1024" in text) == (Code.INVALID_ARGUMENT, True)
            assert (code is Code.OK) == (width == 230)


def test_array_of_is_the_inverse_of_raw_of() -> None:
    """The tests' own codec of BYTES."""
    assert is_same(
        array_of(b"\1\0\0\0a\0\0\0\0", "BYTES", (2, 1)), np.array([[b"a"], [b""]], object)
    )
