"""ModelInfer: right ones in every form, and every class of wrong ones."""

from __future__ import annotations

import numpy as np
import tritonclient.grpc as triton
from outcome import CALL_S, Cases, Facts, Server, numbers, pair, tensor, told
from tritonclient.grpc import service_pb2 as pb

cases = Cases()
Request = pb.ModelInferRequest


@cases("infer")
def _infer(server: Server) -> Facts:
    answer = server.infer(pair(2, id="seven"))
    same = list(answer.raw_output_contents) == list(pair(2).raw_input_contents)
    return {**told(answer), "same": same}


@cases("infer by the client, outputs in another order")
def _by_the_client(server: Server) -> Facts:
    answer = server.client.infer(
        "pair",
        [tensor("b", "INT32", np.ones((1, 2), np.int32)), tensor("a", "FP32", numbers(1, 4))],
        outputs=[triton.InferRequestedOutput("q"), triton.InferRequestedOutput("p")],
        client_timeout=CALL_S,
    )
    values = [answer.as_numpy(name).tolist() for name in ("q", "p")]
    return {**told(answer.get_response()), "values": values}


@cases("infer with typed contents")
def _typed(server: Server) -> Facts:
    request = Request(model_name="whole")
    request.inputs.add(name="x", datatype="FP32", shape=[2, 3]).contents.fp32_contents.extend(
        range(6)
    )
    return told(server.infer(request))


for _algorithm in ("gzip", "deflate"):

    @cases(f"infer packed with {_algorithm}")
    def _packed(server: Server, algorithm: str = _algorithm) -> Facts:
        answer = server.client.infer(
            "whole",
            [tensor("x", "FP32", numbers(2, 3))],
            compression_algorithm=algorithm,
            client_timeout=CALL_S,
        )
        return told(answer.get_response())


@cases("infer with metadata of its own")
def _metadata(server: Server) -> Facts:
    return told(server.infer(pair(), metadata=(("x-a", "1"), ("headrace-x", "2"))))


def _changed(name: str, change: object) -> None:
    """A case: the right request with one change to it."""

    def case(server: Server) -> Facts:
        request = pair(2)
        change(request)
        return told(server.infer(request))

    cases(f"infer with {name}")(case)


def _set(**fields: object) -> object:
    def change(request: Request) -> None:
        for name, value in fields.items():
            setattr(request, name, value)

    return change


def _input(**fields: object) -> object:
    def change(request: Request) -> None:
        for name, value in fields.items():
            if name == "shape":
                del request.inputs[0].shape[:]
                request.inputs[0].shape.extend(value)
            else:
                setattr(request.inputs[0], name, value)

    return change


def _raw(*entries: bytes) -> object:
    def change(request: Request) -> None:
        del request.raw_input_contents[:]
        request.raw_input_contents.extend(entries)

    return change


def _parameter(name: str, where: str = "request", **value: object) -> object:
    def change(request: Request) -> None:
        if where == "output":
            request.outputs.add(name="p")
        owner = {"request": [request], "input": request.inputs, "output": request.outputs}[where][0]
        owner.parameters[name].CopyFrom(pb.InferParameter(**value))

    return change


def _typed_too(request: Request) -> None:
    request.inputs[0].contents.fp32_contents.extend([0.0] * 8)


def _twice(request: Request) -> None:
    request.inputs.add().CopyFrom(request.inputs[0])
    request.raw_input_contents.append(request.raw_input_contents[0])


def _fewer(request: Request) -> None:
    del request.inputs[1:]
    del request.raw_input_contents[1:]


def _more(request: Request) -> None:
    request.inputs.add(name="c", datatype="FP32", shape=[2, 1])
    request.raw_input_contents.append(bytes(8))


def _unequal(request: Request) -> None:
    request.inputs[1].shape[0] = 1
    request.raw_input_contents[1] = bytes(8)


def _rows(count: int) -> object:
    return lambda request: request.CopyFrom(pair(count))


def _outputs(*names: str) -> object:
    def change(request: Request) -> None:
        for name in names:
            request.outputs.add(name=name)

    return change


_A, _B = bytes(32), bytes(16)
for _name, _change in {
    "no model's name": _set(model_name=""),
    "a model that is not there": _set(model_name="nothing"),
    "a model that is not loaded": _set(model_name="spare"),
    "a path as the model's name": _set(model_name="../pair"),
    "the version": _set(model_version="1"),
    "a version that is not there": _set(model_version="9"),
    "a version that is no number": _set(model_version="one"),
    "a version below 0": _set(model_version="-1"),
    "a version beyond 64 bits": _set(model_version="9" * 30),
    "an id that is long": _set(id="i" * 2000),
    "another datatype": _input(datatype="FP64"),
    "a datatype that is none": _input(datatype="FP31"),
    "no datatype": _input(datatype=""),
    "a name that is no input": _input(name="z"),
    "an input twice": _twice,
    "an input too few": _fewer,
    "an input too many": _more,
    "rows that differ by input": _unequal,
    "as many rows as may be": _rows(8),
    "a row too many": _rows(9),
    "no rows": _rows(0),
    "a dimension too few": _input(shape=[2]),
    "a dimension too many": _input(shape=[2, 4, 1]),
    "another dimension": _input(shape=[2, 5]),
    "a dimension of -1": _input(shape=[-1, 4]),
    "a dimension of -2": _input(shape=[2, -2]),
    "dimensions that wrap to 0": _input(shape=[2**32, 2**32]),
    "a dimension of 2⁶²": _input(shape=[2**62, 4]),
    "no shape": _input(shape=[]),
    "a byte too few": _raw(_A[1:], _B),
    "a byte too many": _raw(_A + b"a", _B),
    "no bytes": _raw(b"", _B),
    "a tensor too few": _raw(_A),
    "a tensor too many": _raw(_A, _B, _B),
    "no tensors": _raw(),
    "raw and typed contents at once": _typed_too,
    "one output": _outputs("q"),
    "an output that is not there": _outputs("z"),
    "an output twice": _outputs("p", "p"),
    "priority 0": _parameter("priority", uint64_param=0),
    "priority 1 where there are none": _parameter("priority", uint64_param=1),
    "priority as text": _parameter("priority", string_param="1"),
    "priority as int64": _parameter("priority", int64_param=1),
    "a timeout": _parameter("timeout", int64_param=1_000_000),
    "a timeout below 0": _parameter("timeout", int64_param=-5),
    "a timeout as text": _parameter("timeout", string_param="1"),
    "a parameter that is text": _parameter("mine", string_param="a"),
    "a parameter that is a number": _parameter("mine", int64_param=1),
    "a parameter that is a fraction": _parameter("mine", double_param=1.5),
    "a parameter that is true": _parameter("mine", bool_param=True),
    "a parameter that is uint64": _parameter("mine", uint64_param=1),
    "a parameter without a value": _parameter("mine"),
    "a parameter of Triton's that is not there": _parameter("triton_mine", string_param="a"),
    "an empty final response asked for": _parameter(
        "triton_enable_empty_final_response", bool_param=True
    ),
    "the same as text": _parameter("triton_enable_empty_final_response", string_param="a"),
    "binary_data_output": _parameter("binary_data_output", bool_param=True),
    "headers as a parameter": _parameter("headers", string_param="a"),
    "a sequence that the model has not": _parameter("sequence_id", int64_param=7),
    "a sequence by a name": _parameter("sequence_id", string_param="cam"),
    "a sequence of a wrong type": _parameter("sequence_id", bool_param=True),
    "a sequence's start as text": _parameter("sequence_start", string_param="a"),
    "binary_data of an output": _parameter("binary_data", "output", bool_param=False),
    "an unknown parameter of an output": _parameter("mine", "output", bool_param=False),
    "an unknown parameter of an input": _parameter("mine", "input", bool_param=False),
    "classes of numbers": _parameter("classification", "output", int64_param=2),
    "classes as text": _parameter("classification", "output", string_param="2"),
    "classes 0": _parameter("classification", "output", int64_param=0),
    "classes below 0": _parameter("classification", "output", int64_param=-1),
    "more classes than there are": _parameter("classification", "output", int64_param=99),
}.items():
    _changed(_name, _change)


@cases("infer that fails while it runs")
def _fails(server: Server) -> Facts:
    bad = tensor("x", "INT64", np.array([[99]], np.int64))
    return told(server.client.infer("failing", [bad], client_timeout=CALL_S).get_response())


@cases("infer after one that failed")
def _after(server: Server) -> Facts:
    good = tensor("x", "INT64", np.array([[1]], np.int64))
    return told(server.client.infer("failing", [good], client_timeout=CALL_S).get_response())


@cases("bytes that are no message")
def _bytes(server: Server) -> Facts:
    call = server.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    return {"bytes": len(call(b"\x0a\xff\xff", timeout=CALL_S))}


@cases("an RPC that is not there")
def _no_rpc(server: Server) -> Facts:
    call = server.channel.unary_unary("/inference.GRPCInferenceService/Nothing")
    return {"bytes": len(call(b"", timeout=CALL_S))}


for _levels in (1, 2, 3):

    @cases(f"infer with priority {_levels} of two")
    def _priority(server: Server, level: int = _levels) -> Facts:
        x = tensor("x", "FP32", numbers(1, 4))
        answer = server.client.infer("wishes", [x], priority=level, client_timeout=CALL_S)
        return told(answer.get_response())


@cases("infer with a timeout that the model takes")
def _timeout(server: Server) -> Facts:
    x = tensor("x", "FP32", numbers(1, 4))
    answer = server.client.infer("wishes", [x], timeout=5_000_000, client_timeout=CALL_S)
    return told(answer.get_response())
