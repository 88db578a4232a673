"""Runs the cases of one set-up against one server and prints what came of each, as JSON.

python compare ADDRESS SET-UP PAYLOAD [CASE…]; PAYLOAD is JSON, see `outcome.Server`, and without
one the names are printed. A case that ends the server is the last one.
"""

from __future__ import annotations

import json
import sys

import cached
import contents
import describe
import ensembles
import grpc
import infer
import memory
import repository
import restricted
import sequences
import settings
import streams
from outcome import CALL_S, Facts, Server, outcome

SETUPS = {
    "explicit": {
        **describe.cases,
        **infer.cases,
        **contents.cases,
        **streams.cases,
        **settings.cases,
        **repository.cases,
    },
    "fixed": repository.fixed,
    "restricted": restricted.cases,
    "shared": memory.cases,
    "sequences": sequences.cases,
    "cached": cached.cases,
    "ensembles": ensembles.cases,
}
ENDED: Facts = {"code": "the server ended"}


def main() -> None:
    address, setup, payload, *names = sys.argv[1:]
    if not payload:
        print(json.dumps(list(SETUPS[setup])))
        return
    server = Server(address, json.loads(payload))
    seen: dict[str, Facts] = {}
    try:
        for name in names or SETUPS[setup]:
            seen[name] = outcome(SETUPS[setup][name], server)
            if seen[name].get("code") == "UNAVAILABLE" and not _is_there(address):
                seen[name] = ENDED
                break
    finally:
        server.close()
    print(json.dumps(seen))


def _is_there(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=CALL_S)
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.UNAVAILABLE
        return True


if __name__ == "__main__":
    main()
