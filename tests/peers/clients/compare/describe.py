"""Health, and what a server says of itself and its models."""

from __future__ import annotations

import tritonclient.grpc as triton
from outcome import CALL_S, Cases, Facts, Server, counted, numbers, tensor
from tritonclient.grpc import service_pb2 as pb

cases = Cases()


@cases("live")
def _live(server: Server) -> Facts:
    return {"live": server.client.is_server_live()}


@cases("ready")
def _ready(server: Server) -> Facts:
    return {"ready": server.client.is_server_ready()}


def _model_ready(server: Server, name: str, version: str = "") -> Facts:
    request = pb.ModelReadyRequest(name=name, version=version)
    return {"ready": server.stub.ModelReady(request, timeout=CALL_S).ready}


for _what, _name, _version in (
    ("", "pair", ""),
    (" of a version", "pair", "1"),
    (" of a version that is not there", "pair", "9"),
    (" of a version that is no number", "pair", "one"),
    (" of a model that is not there", "nothing", ""),
    (" of a model that is not loaded", "spare", ""),
    (" of a model without a name", "", ""),
):
    cases(f"model ready{_what}")(lambda server, n=_name, v=_version: _model_ready(server, n, v))


def _check(server: Server, name: str) -> Facts:
    """By hand: the environments of the clients have no messages of grpc.health.v1."""
    call = server.channel.unary_unary("/grpc.health.v1.Health/Check")
    answer = call(b"\x0a" + bytes([len(name)]) + name.encode(), timeout=CALL_S)
    return {"status": list(answer)}


for _service in ("", "inference.GRPCInferenceService", "pair", "nothing"):
    cases(f"health check of {_service or 'the server'}")(
        lambda server, name=_service: _check(server, name)
    )


@cases("server metadata")
def _server_metadata(server: Server) -> Facts:
    metadata = server.client.get_server_metadata()
    return {"has_name": bool(metadata.name), "extensions": sorted(metadata.extensions)}


def metadata(server: Server, name: str, version: str = "") -> Facts:
    answer = server.client.get_model_metadata(name, version)
    ports = {
        kind: sorted([each.name, each.datatype, list(each.shape)] for each in listed)
        for kind, listed in (("inputs", answer.inputs), ("outputs", answer.outputs))
    }
    return {"name": answer.name, "versions": list(answer.versions), **ports}


def config(server: Server, name: str, version: str = "") -> Facts:
    read = server.client.get_model_config(name, version).config
    return {
        "name": read.name,
        "max_batch_size": read.max_batch_size,
        "inputs": sorted([each.name, each.data_type, list(each.dims)] for each in read.input),
        "outputs": sorted([each.name, each.data_type, list(each.dims)] for each in read.output),
        "scheduling": read.WhichOneof("scheduling_choice") or "none",
        "versions": read.version_policy.WhichOneof("policy_choice"),
        "labels": [each.label_filename for each in read.output],
        "groups": [[each.count, each.kind] for each in read.instance_group],
    }


def statistics(server: Server, name: str, version: str = "") -> Facts:
    answer = server.client.get_inference_statistics(name, version)
    return {"models": sorted([each.name, each.version] for each in answer.model_stats)}


for _what, _call in (("metadata", metadata), ("config", config), ("statistics", statistics)):
    for _case, _name, _version in (
        ("pair", "pair", ""),
        ("words", "words", ""),
        ("one without batches", "whole", ""),
        ("one with labels", "labelled", ""),
        ("one with all its versions", "both", ""),
        ("one with its last version", "two", ""),
        ("a version", "both", "1"),
        ("a version that is not served", "two", "1"),
        ("a version that is no number", "pair", "one"),
        ("what is not there", "nothing", ""),
        ("what is not loaded", "spare", ""),
    ):
        cases(f"{_what} of {_case}")(
            lambda server, call=_call, name=_name, version=_version: call(server, name, version)
        )


@cases("statistics of all")
def _all(server: Server) -> Facts:
    return statistics(server, "")


@cases("what statistics count")
def _counted(server: Server) -> Facts:
    """Two rows in one request, then one that is refused."""

    def read() -> dict[str, int]:
        (model,) = server.client.get_inference_statistics("whole").model_stats
        stages = model.inference_stats
        return {
            "rows": model.inference_count,
            "executions": model.execution_count,
            "success": stages.success.count,
            "fail": stages.fail.count,
            "queue": stages.queue.count,
            "input": stages.compute_input.count,
            "infer": stages.compute_infer.count,
            "output": stages.compute_output.count,
        }

    before = read()
    server.client.infer("whole", [tensor("x", "FP32", numbers(2, 3))], client_timeout=CALL_S)
    after = counted(read, before)
    try:
        wrong = tensor("x", "FP32", numbers(3, 3))
        server.client.infer("whole", [wrong], client_timeout=CALL_S)
    except triton.InferenceServerException:
        pass
    last = read()
    return {
        "by one": {name: after[name] - before[name] for name in after},
        "by one that is refused": {name: last[name] - after[name] for name in after},
    }
