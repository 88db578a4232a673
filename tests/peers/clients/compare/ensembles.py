"""Models made of models: `chain` is `wishes` and then `two`, `fragile` is `failing` alone.

`gap` names a model that is not there. The server was told to load the first two and nothing else.
"""

from __future__ import annotations

import numpy as np
from describe import config, metadata, statistics
from outcome import CALL_S, Cases, Facts, Server, counted, numbers, tensor, told
from tritonclient.grpc import service_pb2 as pb

cases = Cases()


def _states(server: Server) -> Facts:
    answer = server.stub.RepositoryIndex(pb.RepositoryIndexRequest(), timeout=CALL_S)
    names = ("chain", "wishes", "two", "fragile", "failing", "gap")
    models = [[each.name, each.version, each.state] for each in answer.models]
    return {"models": sorted(each for each in models if each[0] in names)}


def _request(rows: int = 1, columns: int = 4, **fields: object) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="chain", **fields)
    request.inputs.add(name="x", datatype="FP32", shape=[rows, columns])
    request.raw_input_contents.append(numbers(rows, columns).tobytes())
    return request


def _infer(server: Server, request: pb.ModelInferRequest) -> Facts:
    answer = server.infer(request)
    same = list(answer.raw_output_contents) == list(request.raw_input_contents)
    return {**told(answer), "same": same}


cases("ensemble: states")(_states)
cases("ensemble: metadata")(lambda server: metadata(server, "chain"))
cases("ensemble: statistics")(lambda server: statistics(server, "chain"))
cases("ensemble: infer")(lambda server: _infer(server, _request(id="seven")))
cases("ensemble: infer of a version")(lambda server: _infer(server, _request(model_version="1")))
cases("ensemble: infer of as many rows as may be")(lambda server: _infer(server, _request(8)))
cases("ensemble: infer of a row too many")(lambda server: _infer(server, _request(9)))
cases("ensemble: infer of another shape")(lambda server: _infer(server, _request(1, 5)))


@cases("ensemble: config")
def _config(server: Server) -> Facts:
    read = server.client.get_model_config("chain").config
    steps = [[each.model_name, each.model_version] for each in read.ensemble_scheduling.step]
    facts = config(server, "chain")
    return {**facts, "platform": read.platform, "steps": steps}


@cases("ensemble: infer of an output that is not there")
def _unknown_output(server: Server) -> Facts:
    request = _request()
    request.outputs.add(name="h")
    return _infer(server, request)


@cases("ensemble: infer of a step by itself")
def _step(server: Server) -> Facts:
    request = _request()
    request.model_name = "wishes"
    return _infer(server, request)


@cases("ensemble: infer of one that fails")
def _fails(server: Server) -> Facts:
    bad = tensor("x", "INT64", np.array([[99]], np.int64))
    return told(server.client.infer("fragile", [bad], client_timeout=CALL_S).get_response())


@cases("ensemble: infer of the same after that")
def _after(server: Server) -> Facts:
    good = tensor("x", "INT64", np.array([[1]], np.int64))
    return told(server.client.infer("fragile", [good], client_timeout=CALL_S).get_response())


@cases("ensemble: stream")
def _stream(server: Server) -> Facts:
    requests = [_request(id=str(number)) for number in range(3)]
    answers = server.stub.ModelStreamInfer(iter(requests), timeout=CALL_S)
    return {"ids": [[each.infer_response.id, each.error_message] for each in answers]}


@cases("ensemble: what statistics count")
def _counted(server: Server) -> Facts:
    def read(name: str) -> dict[str, int]:
        (model,) = server.client.get_inference_statistics(name).model_stats
        counts = model.inference_stats
        return {
            "rows": model.inference_count,
            "executions": model.execution_count,
            "success": counts.success.count,
            "infer": counts.compute_infer.count,
        }

    names = ("chain", "wishes", "two")
    before = {name: read(name) for name in names}
    server.infer(_request(2))
    after = {name: counted(lambda name=name: read(name), before[name]) for name in names}
    return {
        name: {key: after[name][key] - before[name][key] for key in after[name]} for name in names
    }


cases("ensemble: load one with a gap")(
    lambda server: server.client.load_model("gap", client_timeout=CALL_S) or _states(server)
)


@cases("ensemble: unload")
def _unload(server: Server) -> Facts:
    server.client.unload_model("chain", client_timeout=CALL_S)
    return {
        "chain": server.client.is_model_ready("chain"),
        "two": server.client.is_model_ready("two"),
    }


@cases("ensemble: load again, unload with its steps")
def _unload_all(server: Server) -> Facts:
    server.client.load_model("chain", client_timeout=CALL_S)
    ready = {name: server.client.is_model_ready(name) for name in ("chain", "two")}
    server.client.unload_model("chain", unload_dependents=True, client_timeout=CALL_S)
    after = {name: server.client.is_model_ready(name) for name in ("chain", "two")}
    return {"before": ready, "after": after}


@cases("ensemble: unload a step alone")
def _unload_step(server: Server) -> Facts:
    server.client.load_model("chain", client_timeout=CALL_S)
    server.client.unload_model("two", client_timeout=CALL_S)
    return {name: server.client.is_model_ready(name) for name in ("chain", "two")}
