"""A client in a process of its own, for large messages; see `drive` for its arguments.

Sends the same bytes again and again, checks the length of every answer, and prints latencies,
failures and the time that it measured, as JSON. The numbers in an answer are checked before.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

import grpc
import grpc.aio
import uvloop

from helpers.raw_http2 import INFER
from load.work import request

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


class Load:
    """Callers in a closed loop: each sends its next request when it has its answer."""

    def __init__(self, message: bytes, num_reply_bytes: int) -> None:
        self.message = message
        self.num_reply_bytes = num_reply_bytes
        self.latencies_s: list[float] = []
        self.failed = 0
        self.is_over = False

    async def caller(self, call: Any) -> None:
        while not self.is_over:
            started = time.perf_counter()
            try:
                is_right = len(await call(self.message, timeout=60)) == self.num_reply_bytes
            except grpc.aio.AioRpcError:
                is_right = False
            if is_right:
                self.latencies_s.append(time.perf_counter() - started)
            else:
                self.failed += 1


async def main(address: str, model: str, connections: int, streams: int, seconds: float) -> None:
    """One measurement."""
    channels = [grpc.aio.insecure_channel(address, options=OPTIONS) for _ in range(connections)]
    calls: list[Any] = [channel.unary_unary(INFER) for channel in channels]
    for call in calls:
        reply = await call(request(model), timeout=60, wait_for_ready=True)
    load = Load(request(model), len(reply))
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    callers = [asyncio.create_task(load.caller(call)) for call in calls for _ in range(streams)]
    await asyncio.sleep(seconds)
    load.is_over = True
    await asyncio.gather(*callers)
    measured_s = time.perf_counter() - started
    for channel in channels:
        await channel.close()
    print(json.dumps({"s": measured_s, "latencies_s": load.latencies_s, "failed": load.failed}))


if __name__ == "__main__":
    target, name, num_connections, num_streams, duration = sys.argv[1:]
    uvloop.run(main(target, name, int(num_connections), int(num_streams), float(duration)))
