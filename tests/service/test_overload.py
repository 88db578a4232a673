"""More requests than fit: a refusal that says so, at once, and that is not asked for again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from helpers.rpc_client import SERVICE, RpcClient, arrays, slow_message, told
from helpers.scrape import Scrape, is_at_rest
from helpers.server import Server, ServerPool
from helpers.slow_calls import LONG, assert_answered, fill, wait_until_inside

Code = grpc.StatusCode
TEXT = "Exceeds maximum queue size: 2 requests wait for slow"

# As KServe's client has it, only quicker.
RETRYING = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 3,
                    "initialBackoff": "0.01s",
                    "maxBackoff": "0.02s",
                    "backoffMultiplier": 1,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ]
    }
)


def full(client: RpcClient, server: Server) -> list[Any]:
    """Two requests that run one after another, and two that wait; nothing else."""
    Scrape.when(server.metrics_address, is_at_rest)
    return fill(client, server, 4)


def num_refused(server: Server) -> float:
    return Scrape(server.metrics_address)("headrace_dropped", reason="queue_full")


def test_a_full_queue_refuses_at_once(slow: Server, transport: str) -> None:
    """UNAVAILABLE with Triton's words, counted; those that are in are answered."""
    refused_before = num_refused(slow)
    with RpcClient(slow.address) as client:
        calls = full(client, slow)
        call = client.start(slow_message(1))
        assert told(call) == (Code.UNAVAILABLE, TEXT)
        assert num_refused(slow) - refused_before == 1
        trailers = dict(call.trailing_metadata())
        # The native transport cannot send metadata of this name.
        assert trailers.get("grpc-retry-pushback-ms") == ("-1" if transport == "grpcio" else None)
        assert not calls[3].done()
        assert_answered(calls)


def test_clients_that_retry_do_not_make_a_storm(slow: Server, transport: str) -> None:
    """The push-back keeps gRPC's own retries from asking again; without it they ask three times."""
    refused_before = num_refused(slow)
    options = [("grpc.service_config", RETRYING), ("grpc.enable_retries", 1)]
    with (
        RpcClient(slow.address) as client,
        grpc.insecure_channel(slow.address, options) as retrying,
    ):
        calls = full(client, slow)
        infer = retrying.unary_unary(
            f"{SERVICE}ModelInfer", bytes, pb.ModelInferResponse.FromString
        )
        call = infer.future(slow_message(1), timeout=20)
        assert told(call) == (Code.UNAVAILABLE, TEXT)
        assert num_refused(slow) - refused_before == (1 if transport == "grpcio" else 3)
        assert_answered(calls)


def test_there_is_room_again_when_one_is_done(slow: Server) -> None:
    """A refusal is about now."""
    with RpcClient(slow.address) as client:
        calls = full(client, slow)
        assert told(client.start(slow_message(1)))[0] is Code.UNAVAILABLE
        calls[0].result()
        assert arrays(client.start(slow_message(1, [9.0])).result())["y"].tolist() == [9.0]
        assert_answered(calls)


def test_another_status_for_overload(
    servers: ServerPool, slow_repository: Path, transport: str
) -> None:
    """RESOURCE_EXHAUSTED for who wants clients that retry UNAVAILABLE to leave it."""
    server = servers.get(
        *("--model-repository", slow_repository, "--transport", transport),
        *("--max-queue-size", "2", "--overload-status", "RESOURCE_EXHAUSTED"),
    )
    with RpcClient(server.address) as client:
        calls = full(client, server)
        assert told(client.start(slow_message(1))) == (Code.RESOURCE_EXHAUSTED, TEXT)
        assert_answered(calls)


@pytest.mark.parametrize("rows", [1000, 300_000])
def test_staging_memory_is_a_bound_too(
    servers: ServerPool, slow_repository: Path, transport: str, rows: int
) -> None:
    """A request that could never fit is refused for good; one that fits later waits its turn."""
    server = servers.get(
        *("--model-repository", slow_repository, "--transport", transport),
        *("--max-queue-size", "2", "--overload-status", "RESOURCE_EXHAUSTED"),
        *("--pinned-memory-pool-byte-size", str(1 << 20)),
    )
    x = [1.0] * rows
    with RpcClient(server.address) as client:
        call = client.start(slow_message(1, x))
        if rows == 1000:
            assert arrays(call.result())["y"].tolist() == x
            calls = [client.start(slow_message(1, [i] * 80_000)) for i in range(3)]  # two fit
            assert [arrays(call.result())["y"][0] for call in calls] == [0, 1, 2]
        else:
            code, text = told(call)
            assert code is Code.RESOURCE_EXHAUSTED
            assert "--pinned-memory-pool-byte-size" in text
        Scrape.when(server.metrics_address, is_at_rest)


def test_bytes_in_flight_are_a_bound(servers: ServerPool, slow_repository: Path) -> None:
    """What is served and what waits, together, whatever the staging memory could hold."""
    server = servers.get(
        *("--model-repository", slow_repository),
        *("--grpc-max-request-bytes", str(1 << 20), "--max-bytes-in-flight", str(2 << 20)),
    )
    with RpcClient(server.address) as client:
        Scrape.when(server.metrics_address, is_at_rest)
        calls = []
        for index in range(3):  # each takes 0.6 MB: what comes in and what goes out
            calls.append(client.start(slow_message(LONG, [index] * 75_000)))
            wait_until_inside(server, index + 1)
        code, text = told(client.start(slow_message(1, [9.0] * 75_000)))
        assert (code, "staging memory is in use" in text) == (Code.UNAVAILABLE, True)
        leased = Scrape(server.metrics_address)("headrace_blocks_leased_bytes")
        assert 1_800_000 < leased <= 2 << 20
        assert [arrays(call.result())["y"][0] for call in calls] == [0, 1, 2]
        Scrape.when(server.metrics_address, is_at_rest)
