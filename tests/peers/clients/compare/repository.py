"""The models of a server: what there is, and loading and unloading where clients may do that."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from outcome import CALL_S, Cases, Facts, Server, numbers, tensor, told
from tritonclient.grpc import service_pb2 as pb

cases = Cases()  # of a server in explicit mode
fixed = Cases()  # of one that loads at its start and never again


def _index(server: Server, ready: bool = False, name: str = "") -> Facts:
    answer = server.stub.RepositoryIndex(
        pb.RepositoryIndexRequest(ready=ready, repository_name=name), timeout=CALL_S
    )
    return {"models": sorted([each.name, each.version, each.state] for each in answer.models)}


def _state(server: Server, name: str) -> list[list[str]]:
    return [each for each in _index(server)["models"] if each[0] == name]


def _load(server: Server, name: str, repository: str = "", **parameters: object) -> Facts:
    request = pb.RepositoryModelLoadRequest(model_name=name, repository_name=repository)
    for key, value in parameters.items():
        request.parameters[key].CopyFrom(pb.ModelRepositoryParameter(**value))
    server.stub.RepositoryModelLoad(request, timeout=CALL_S)
    return {"state": _state(server, name)}


def _unload(server: Server, name: str, repository: str = "") -> Facts:
    request = pb.RepositoryModelUnloadRequest(model_name=name, repository_name=repository)
    request.parameters["unload_dependents"].bool_param = False
    server.stub.RepositoryModelUnload(request, timeout=CALL_S)
    return {}


for _kind in (cases, fixed):
    _kind("index")(_index)
    _kind("index of what is ready")(lambda server: _index(server, ready=True))
    _kind("index of a repository by name")(lambda server: _index(server, name="mine"))
    _kind("load what is not there")(lambda server: _load(server, "nothing"))
    _kind("unload what is not there")(lambda server: _unload(server, "nothing"))
    _kind("load into a repository by name")(lambda server: _load(server, "spare", "mine"))
    _kind("unload from a repository by name")(lambda server: _unload(server, "spare", "mine"))
    _kind("load a path")(lambda server: _load(server, "../spare"))

fixed("load")(lambda server: _load(server, "pair"))
fixed("unload")(lambda server: _unload(server, "pair"))

cases("load what is broken")(lambda server: _load(server, "broken"))
cases("unload what is not loaded")(lambda server: _unload(server, "spare"))


@cases("load, ask, unload")
def _load_and_unload(server: Server) -> Facts:
    server.client.load_model("spare", client_timeout=CALL_S)
    x = tensor("x", "FP32", numbers(1, 4))
    answer = server.client.infer("spare", [x], client_timeout=CALL_S)
    told_ = told(answer.get_response())
    server.client.load_model("spare", client_timeout=CALL_S)  # again: nothing changed
    ready = server.client.is_model_ready("spare")
    server.client.unload_model("spare", client_timeout=CALL_S)
    return {"answer": told_, "ready": [ready, server.client.is_model_ready("spare")]}


def _with_config(server: Server, config: str, **files: bytes) -> Facts:
    """The limit of rows and what is asked for again after a load, which is undone."""
    arguments = {"config": config, "files": files} if files else {"config": config}
    try:
        server.client.load_model("spare", client_timeout=CALL_S, **arguments)
        read = server.client.get_model_config("spare").config
        metadata = server.client.get_model_metadata("spare")
        return {"max_batch_size": read.max_batch_size, "versions": list(metadata.versions)}
    finally:
        server.client.unload_model("spare", client_timeout=CALL_S)


def _config_of(server: Server, **fields: object) -> str:
    x = {"name": "x", "data_type": "TYPE_FP32", "dims": [4]}
    return json.dumps(
        {
            "name": "spare",
            "backend": server.payload["backend"],
            "max_batch_size": 8,
            "input": [x],
            "output": [{**x, "name": "y"}],
            **fields,
        }
    )


cases("load with a configuration")(
    lambda server: _with_config(server, _config_of(server, max_batch_size=3))
)
cases("load with a configuration that is no JSON")(lambda server: _with_config(server, "{"))
cases("load with a configuration that is empty")(lambda server: _with_config(server, ""))
cases("load with a configuration with a field that is none")(
    lambda server: _with_config(server, _config_of(server, nothing=1))
)
cases("load with a configuration of another name")(
    lambda server: _with_config(server, _config_of(server, name="other"))
)
cases("load with a configuration that is a number")(
    lambda server: _load(server, "spare", config={"int64_param": 1})
)
cases("load with an unknown parameter")(
    lambda server: _load(server, "spare", mine={"string_param": "a"})
)


def _uploaded(server: Server, name: str, path: str) -> Facts:
    """A model whose file the client sends."""
    content = Path(server.payload["file"]).read_bytes()
    config = _config_of(server, name=name)
    server.client.load_model(name, config=config, files={path: content}, client_timeout=CALL_S)
    try:
        x = tensor("x", "FP32", np.ones((1, 4), np.float32))
        answer = server.client.infer(name, [x], client_timeout=CALL_S)
        return {**told(answer.get_response()), "state": _state(server, name)}
    finally:
        server.client.unload_model(name, client_timeout=CALL_S)


cases("load a model that the client sends")(
    lambda server: _uploaded(server, "sent", f"file:1/{server.payload['name']}")
)
cases("load a file that lies outside of its model")(
    lambda server: _uploaded(server, "out", f"file:../{server.payload['name']}")
)
cases("load a file without a version")(
    lambda server: _uploaded(server, "bare", f"file:{server.payload['name']}")
)
cases("load a file without a configuration")(
    lambda server: _load(server, "sent", **{"file:1/a": {"bytes_param": b"a"}})
)


@cases("index after all that")
def _last(server: Server) -> Facts:
    return _index(server)
