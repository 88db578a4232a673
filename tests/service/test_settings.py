"""LogSettings and TraceSetting as tritonclient calls them, and what they do to a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from helpers.rpc_client import RpcClient, slow_message, told
from helpers.server import NO_DEBUG, Server, serving
from helpers.trace_check import check_trace, requests_of


@pytest.fixture
def recorded(small_repository: Path, transport: str, tmp_path: Path) -> Iterator[Server]:
    """A server that could record, and waits to be told to."""
    args = ("--model-repository", small_repository, "--transport", transport)
    trace = ("--timeline", tmp_path / "trace.json", "--timeline-at-start=false")
    with serving(*args, *trace, env=NO_DEBUG) as server:
        yield server


def ask(server: Server, count: int) -> None:
    with RpcClient(server.address) as client:
        calls = [client.start(slow_message(1, [float(n)])) for n in range(count)]
        assert {told(call)[0].name for call in calls} == {"OK"}


def test_a_trace_from_the_client_s_side(recorded: Server, tmp_path: Path) -> None:
    """On with every request, asked for, off again: the file has them all."""
    with triton.InferenceServerClient(recorded.address) as client:
        before = client.get_trace_settings(as_json=True)["settings"]
        assert before["trace_level"] == {"value": ["OFF"]}
        on = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": None}
        after = client.update_trace_settings(settings=on, as_json=True)["settings"]
        assert (after["trace_level"], after["trace_rate"]) == (
            {"value": ["TIMESTAMPS"]},
            {"value": ["1"]},
        )
        ask(recorded, 5)
        client.update_trace_settings(settings={"trace_level": "OFF"})
        assert client.get_trace_settings("slow") == client.get_trace_settings()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    check_trace(events)
    assert len(requests_of(events)) == 5


def test_the_log_from_the_client_s_side(recorded: Server) -> None:
    """Debug messages come when they are asked for, and the change is in the log."""
    with triton.InferenceServerClient(recorded.address) as client:
        settings = client.get_log_settings(as_json=True)["settings"]
        assert settings["log_info"] == {"bool_param": True}
        client.update_log_settings({"log_verbose_level": 1, "log_format": "json"})
        seen = client.update_log_settings({"log_info": False}, as_json=True)["settings"]
        assert seen["log_verbose_level"] == {"uint32_param": 1}
        assert seen["log_format"] == {"string_param": "json"}
        with pytest.raises(InferenceServerException, match="log file location can not be updated"):
            client.update_log_settings({"log_file": "/tmp/headrace.log", "log_info": True})
        assert client.get_log_settings(as_json=True)["settings"] == seen
    give_up_at = monotonic() + 10
    while '"message": "a client changes what is logged: log_info True' not in recorded.output():
        assert monotonic() < give_up_at, recorded.output()
    assert "log_verbose_level 0 → 1, log_format default → json" in recorded.output()
