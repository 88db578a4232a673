"""Sequences: which requests belong together, what the model is told, what is refused.

`turns` answers `y` = x + 100 at a start + 1000 at an end, and `c`, the sequence's number.
"""

from __future__ import annotations

import numpy as np
from describe import config, metadata
from outcome import CALL_S, Cases, Facts, Server, tensor
from tritonclient.grpc import service_pb2 as pb

cases = Cases()


def _request(
    key: int | str | bool | None, x: int = 1, *, start: bool = False, end: bool = False
) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="turns", id=str(x))
    request.inputs.add(name="x", datatype="INT32", shape=[1, 1])
    request.raw_input_contents.append(x.to_bytes(4, "little"))
    given = request.parameters
    if isinstance(key, bool):
        given["sequence_id"].bool_param = key
    elif isinstance(key, str):
        given["sequence_id"].string_param = key
    elif key is not None:
        given["sequence_id"].int64_param = key
    given["sequence_start"].bool_param = start
    given["sequence_end"].bool_param = end
    return request


def _values(answer: pb.ModelInferResponse) -> list[int]:
    raw = {
        each.name: data
        for each, data in zip(answer.outputs, answer.raw_output_contents, strict=True)
    }
    return [int.from_bytes(raw[name], "little") for name in ("y", "c")]


def _ask(server: Server, *requests: pb.ModelInferRequest) -> Facts:
    """One after the other; the first that is refused gives the code."""
    return {"values": [_values(server.infer(request)) for request in requests]}


def _case(name: str, *requests: pb.ModelInferRequest) -> None:
    cases(f"sequence: {name}")(lambda server: _ask(server, *requests))


cases("sequence: metadata")(lambda server: metadata(server, "turns"))
cases("sequence: config")(lambda server: config(server, "turns"))
_case(
    "start, middle, end",
    _request(1, start=True),
    _request(1, 2),
    _request(1, 3),
    _request(1, 4, end=True),
)
_case("start and end in one", _request(2, start=True, end=True))
_case("no start", _request(3))
_case("an end without a start", _request(4, end=True))
_case("more after the end", _request(5, start=True, end=True), _request(5, 2))
_case(
    "a start within", _request(6, start=True), _request(6, 2, start=True), _request(6, 3, end=True)
)
_case("no id", _request(None, start=True))
_case("id 0", _request(0, start=True))
_case("an id below 0", _request(-5, start=True), _request(-5, end=True))
_case("the largest id", _request(2**63 - 1, start=True), _request(2**63 - 1, end=True))
_case("an id that is text", _request("cam", start=True), _request("cam", 2, end=True))
_case("an id that is no text at all", _request("", start=True))
_case("an id of a wrong type", _request(True, start=True))
_case(
    "two of them by turns",
    *(_request(key, key, start=s, end=not s) for s in (True, False) for key in (8, 9)),
)


@cases("sequence: two rows at once")
def _rows(server: Server) -> Facts:
    request = _request(10, start=True, end=True)
    request.inputs[0].shape[0] = 2
    request.raw_input_contents[0] = bytes(8)
    return _ask(server, request)


@cases("sequence: a control from the client")
def _control(server: Server) -> Facts:
    request = _request(11, start=True, end=True)
    request.inputs.add(name="START", datatype="INT32", shape=[1, 1])
    request.raw_input_contents.append(bytes(4))
    return _ask(server, request)


@cases("sequence: by the client")
def _by_the_client(server: Server) -> Facts:
    x = tensor("x", "INT32", np.ones((1, 1), np.int32))
    seen = []
    for start, end in ((True, False), (False, True)):
        answer = server.client.infer(
            "turns",
            [x],
            sequence_id=12,
            sequence_start=start,
            sequence_end=end,
            client_timeout=CALL_S,
        )
        seen.append(_values(answer.get_response()))
    return {"values": seen}


@cases("sequence: two in one stream")
def _stream(server: Server) -> Facts:
    requests = [
        _request(key, 10 * key + turn, start=turn == 0, end=turn == 2)
        for turn in range(3)
        for key in (21, 22)
    ]
    answers = list(server.stub.ModelStreamInfer(iter(requests), timeout=CALL_S))
    right = [each.infer_response for each in answers if not each.error_message]
    seen = [[each.id, *_values(each)] for each in right]
    # Between the two no order is promised.
    by_sequence = [[each for each in seen if each[-1] == key] for key in (21, 22)]
    return {"failed": len(answers) - len(right), "by sequence": by_sequence}
