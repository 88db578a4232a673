"""Calls to the slow model, which has one slot: two run one after another, two more may wait."""

from __future__ import annotations

from typing import Any

from helpers.rpc_client import RpcClient, arrays, slow_message
from helpers.scrape import Scrape, num_inside
from helpers.server import Server

LONG = 2500  # rounds: some tenths of a second
SHORT = 1


def fill(client: RpcClient, server: Server, num_requests: int) -> list[Any]:
    """So many requests in the core: the first two on the slot, the others behind them.

    Without deadlines: else the second would be bound shortly before the first is done.
    """
    calls = []
    for index in range(num_requests):
        calls.append(client.start(slow_message(LONG, [float(index)]), timeout_s=None))
        wait_until_inside(server, index + 1)
    return calls


def wait_until_inside(server: Server, num_requests: int) -> None:
    """Wait until so many requests are in the core."""
    Scrape.when(server.metrics_address, lambda now: num_inside(now) == num_requests)


def assert_answered(calls: list[Any]) -> None:
    """Each of `fill` gets its own answer."""
    answers = [arrays(call.result())["y"].tolist() for call in calls]
    assert answers == [[float(index)] for index in range(len(calls))]
