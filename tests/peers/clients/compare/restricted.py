"""RPCs that need a header: `model-config` and `model-repository`, with `admin-key: secret`."""

from __future__ import annotations

from outcome import CALL_S, Cases, Facts, Server, pair, told
from tritonclient.grpc import service_pb2 as pb

cases = Cases()
_HEADER = "triton-grpc-protocol-admin-key"

for _what, _metadata in {
    "without the header": (),
    "with the header": ((_HEADER, "secret"),),
    "with another value": ((_HEADER, "other"),),
    "with no value": ((_HEADER, ""),),
    "with the value and more": ((_HEADER, "secret "),),
    "with the header twice, wrong first": ((_HEADER, "other"), (_HEADER, "secret")),
    "with the header twice, wrong last": ((_HEADER, "secret"), (_HEADER, "other")),
    "with the key alone as the header": (("admin-key", "secret"),),
}.items():

    @cases(f"config {_what}")
    def _config(server: Server, metadata: object = _metadata) -> Facts:
        request = pb.ModelConfigRequest(name="pair")
        answer = server.stub.ModelConfig(request, timeout=CALL_S, metadata=metadata)
        return {"name": answer.config.name}

    @cases(f"index {_what}")
    def _index(server: Server, metadata: object = _metadata) -> Facts:
        request = pb.RepositoryIndexRequest()
        server.stub.RepositoryIndex(request, timeout=CALL_S, metadata=metadata)
        return {}

    @cases(f"load {_what}")
    def _load(server: Server, metadata: object = _metadata) -> Facts:
        request = pb.RepositoryModelLoadRequest(model_name="spare")
        server.stub.RepositoryModelLoad(request, timeout=CALL_S, metadata=metadata)
        return {}


@cases("infer without the header")
def _infer(server: Server) -> Facts:
    return told(server.infer(pair()))


@cases("metadata without the header")
def _metadata_of(server: Server) -> Facts:
    return {"name": server.client.get_model_metadata("pair").name}


@cases("ready without the header")
def _ready(server: Server) -> Facts:
    return {"ready": server.client.is_server_ready()}
