"""Answers that arrive while the event loop is busy."""

from __future__ import annotations

import os
import subprocess
import sys

from helpers.tree import REPOSITORY

NUM_CALLS = 1000

# A process of its own: grpc.aio starts once. Each turn of its loop takes long, as one that has much
# to send; how many turns are there until all answers are in?
SCRIPT = f"""
import asyncio, time
import grpc.aio
from headrace_client.bench.wakeups import never_block_wakeups
from helpers.echo_server import echo_server

async def main(url):
    never_block_wakeups()
    async with grpc.aio.insecure_channel(url) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        await call(b"")
        left = {{asyncio.create_task(one(call)) for _ in range({NUM_CALLS})}}
        turns = 0
        while not all(task.done() for task in left):
            time.sleep(0.005)
            await asyncio.sleep(0)
            turns += 1
        print(turns)

async def one(call):
    await call(b"")

with echo_server() as echo:
    asyncio.run(main(echo.url))
"""


def test_a_busy_loop_gets_all_answers_of_a_turn() -> None:
    """With grpc.aio as it comes, it gets the first 280 and then one a turn."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests"), "PYTHONASYNCIODEBUG": ""},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < NUM_CALLS // 2
