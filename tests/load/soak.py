"""Soak: clients that send random sizes, cancel and give deadlines at random, for a minute.

    PYTHONPATH=tests python -m load.soak [--seconds 60] [--clients 32] [--transport grpcio native]

Every request carries its own random bytes to an identity model, so an answer can only be right when
it is this request's own. Each must end exactly once, in a way that its client asked for, and at the
end nothing may be left leased, in flight or queued.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2 as pb

from helpers.messages import infer, tensor
from helpers.raw_http2 import INFER
from helpers.server import NO_DEBUG, TRANSPORTS, Server, serving
from load.models import DTYPES, write_repository

MODELS = ("identity_uint8", "identity_fp32", "identity_int64", "identity_bool", "identity_bytes")
ITEM_BYTES = {"UINT8": 1, "FP32": 4, "INT64": 8, "BOOL": 1}
MAX_BYTES = 2 << 20  # of one tensor; sizes are spread evenly over their logarithm
HANG_S = 30.0  # far over any deadline given here: what takes longer hangs
GAUGES = (
    "headrace_blocks_leased",
    "headrace_blocks_leased_bytes",
    "headrace_lanes_in_flight",
    "headrace_slots_busy",
    "headrace_queue_length",
)
PLAIN, CANCEL, DEADLINE = "plain", "cancel", "deadline"
ALLOWED = {
    PLAIN: {"OK"},
    CANCEL: {"OK", "CANCELLED"},
    DEADLINE: {"OK", "DEADLINE_EXCEEDED"},
}


@dataclass
class Tally:
    """What became of the requests: (what their client did, how they ended) → how many."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Requests that ended, each counted once."""
        return self.ends.total()

    def end(self, what: str, how: str, request_id: str, detail: str = "") -> None:
        """Counts one end, and keeps it as a fault when its client did not ask for it."""
        self.ends[what, how] += 1
        if how not in ALLOWED[what]:
            self.faults.append(f"{request_id}: {what} ended {how} {detail}")


def random_request(chance: random.Random, request_id: str) -> tuple[bytes, bytes]:
    """(message, its tensor's bytes) of a random identity model."""
    model = chance.choice(MODELS)
    datatype = model.removeprefix("identity_").upper()
    size = int(MAX_BYTES ** chance.random())
    rows = chance.randint(1, 4)
    if datatype == "BYTES":
        word = chance.randbytes(min(size, 4096)).hex().encode()
        raw, shape = (len(word).to_bytes(4, "little") + word) * rows, [rows, 1]
    else:
        width = max(1, size // (rows * ITEM_BYTES[datatype]))
        raw, shape = chance.randbytes(rows * width * ITEM_BYTES[datatype]), [rows, width]
        if datatype == "BOOL":
            raw = raw.translate(bytes(value & 1 for value in range(256)))
    return infer(model, [tensor("x", datatype, shape)], [raw], request_id=request_id), raw


async def one_request(call: Any, chance: random.Random, request_id: str, tally: Tally) -> None:
    """Sends one request, perhaps cancels it or gives it a deadline, and checks its one end."""
    message, raw = random_request(chance, request_id)
    what = chance.choices((PLAIN, CANCEL, DEADLINE), (70, 15, 15))[0]
    # Before, amid and after what an answer takes.
    patience_s = 10 ** chance.uniform(-4.5, -1.0)
    sent = call(message, timeout=patience_s if what == DEADLINE else HANG_S)
    if what == CANCEL:
        asyncio.get_running_loop().call_later(patience_s, sent.cancel)
    try:
        reply = await sent
    except asyncio.CancelledError:
        if what != CANCEL:
            raise
        tally.end(what, "CANCELLED", request_id)
    except grpc.aio.AioRpcError as error:
        tally.end(what, error.code().name, request_id, error.details() or "")
    else:
        response = pb.ModelInferResponse.FromString(reply)
        is_own = response.id == request_id and list(response.raw_output_contents) == [raw]
        tally.end(what, "OK" if is_own else "WRONG ANSWER", request_id)


async def soak(address: str, *, seconds: float, clients: int = 32, seed: int = 1) -> Tally:
    """Lets `clients` loose on a server for so long."""
    tally = Tally()
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(8)]
    calls: list[Any] = [channel.unary_unary(INFER) for channel in channels]
    until = time.monotonic() + seconds

    async def client(index: int) -> None:
        chance = random.Random(f"{seed} {index}")
        number = 0
        while time.monotonic() < until:
            request_id = f"{index}-{number}"
            await one_request(calls[index % len(calls)], chance, request_id, tally)
            number += 1

    try:
        async with asyncio.TaskGroup() as group:
            for index in range(clients):
                group.create_task(client(index))
    finally:
        for channel in channels:
            await channel.close()
    return tally


def leftovers(server: Server) -> dict[str, float]:
    """Gauges that do not come back to zero within ten seconds, and their values."""
    seen = server.wait_metrics(lambda metrics: not any(metrics[name] for name in GAUGES))
    missing = {name: -1.0 for name in GAUGES if name not in seen}
    return missing | {name: seen[name] for name in GAUGES if seen[name]}


def report(transport: str, tally: Tally, left: dict[str, float], seconds: float) -> bool:
    """Prints what happened; True when all was well."""
    print(f"{transport}: {tally.total} requests in {seconds:g} s")
    for (what, how), count in sorted(tally.ends.items()):
        print(f"  {what:<9} {how:<18} {count}")
    for fault in tally.faults[:20]:
        print(f"  fault: {fault}")
    print(f"  left over: {left or 'nothing'}")
    return not tally.faults and not left


def main(arguments: Sequence[str]) -> int:
    """Soaks the transports one after the other; the exit code is 0 when all was well."""
    parser = argparse.ArgumentParser(prog="load.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transport", nargs="+", default=TRANSPORTS, choices=TRANSPORTS)
    chosen = parser.parse_args(arguments)
    all_well = True
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder), [f"identity_{name.lower()}" for name in DTYPES])
        for transport in chosen.transport:
            options = ("--model-repository", repository, "--transport", transport)
            with serving(*options, env=NO_DEBUG) as server:
                run = soak(
                    server.address, seconds=chosen.seconds, clients=chosen.clients, seed=chosen.seed
                )
                tally = asyncio.run(run)
                all_well &= report(transport, tally, leftovers(server), chosen.seconds)
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
