"""tritonclient, today's and the last of the protobuf 5 days, sync and asyncio, unmodified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.environments import TRITONCLIENT, ClientRun, python_environment
from load.models import DTYPES

pytestmark = pytest.mark.timeout(300)  # the first run installs the environments


@pytest.fixture(params=TRITONCLIENT)
def interpreter(request: pytest.FixtureRequest) -> Path:
    version = str(request.param)
    return python_environment(f"tritonclient-{version}", *TRITONCLIENT[version])


def assert_identities(seen: dict[str, list[str]]) -> None:
    """Every datatype came back as it was sent."""
    assert set(seen) == set(DTYPES)
    assert [name for name, (sent, got) in seen.items() if sent != got] == []


def test_sync(client: ClientRun, interpreter: Path) -> None:
    """Health, descriptions, every datatype, options, callbacks, errors and statistics."""
    seen = client(interpreter, "tritonclient_sync.py")
    assert (seen["live"], seen["ready"], seen["model_ready"]) == (True, True, [True, False])
    assert_identities(seen["identities"])
    assert seen["options"] == {"id": "my id", "version": "1", "outputs": ["q", "p"], "equal": True}
    assert seen["asynchronous"] == [True] * 8
    assert_described(seen)
    assert_refused(seen["errors"])
    assert_settings(seen["settings"])
    (statistics,) = seen["statistics"]
    counts = statistics["inference_stats"]
    assert int(statistics["inference_count"]) >= 2, "two rows were sent"
    stages = ("success", "compute_input", "compute_infer", "compute_output")
    assert len({counts[stage]["count"] for stage in stages}) == 1


def assert_described(seen: dict[str, Any]) -> None:
    """The server says of itself and of the model what the model is."""
    assert "statistics" in seen["server"]["extensions"]
    (x,), (y,) = seen["metadata"]["inputs"], seen["metadata"]["outputs"]
    assert (x["name"], x["datatype"], x["shape"]) == ("x", "FP32", ["-1", "64"])
    assert (y["name"], y["datatype"], y["shape"]) == ("y", "FP32", ["-1", "10"])
    assert seen["config"]["max_batch_size"] == 32
    assert [port["dims"] for port in seen["config"]["input"]] == [["64"]]
    states = {(one["name"], one["state"]) for one in seen["index"]}
    assert {("mlp", "READY"), ("pair", "READY")} <= states


def assert_settings(settings: dict[str, Any]) -> None:
    """All that the protocol has, with the values of a server that was told nothing."""
    assert settings["equal"]
    assert settings["log"]["log_verbose_level"] == {"uint32_param": 0}
    assert settings["log"]["log_format"] == {"string_param": "default"}
    assert settings["trace"]["trace_level"] == {"value": ["OFF"]}
    assert settings["trace"]["trace_count"] == {"value": ["-1"]}


def assert_refused(errors: dict[str, list[str]]) -> None:
    """What is wrong is refused by the status that Triton would use."""
    assert {what: status for what, (status, _) in errors.items()} == {
        "model": "StatusCode.NOT_FOUND",
        "version": "StatusCode.NOT_FOUND",
        "dtype": "StatusCode.INVALID_ARGUMENT",
        "shared_memory": "StatusCode.UNIMPLEMENTED",
    }
    assert "unknown model: 'nothing' is not found" in errors["model"][1]
    assert "FP64" in errors["dtype"][1]


def test_asyncio(client: ClientRun, interpreter: Path) -> None:
    """Every datatype at once, then 64 calls at once on one connection."""
    seen = client(interpreter, "tritonclient_aio.py")
    assert seen["ready"] is True
    assert [tensor["name"] for tensor in seen["metadata"]["inputs"]] == ["a", "b"]
    assert_identities(seen["identities"])
    assert seen["many"] == [True] * 64


def test_streams(client: ClientRun, interpreter: Path) -> None:
    """Order, errors as messages and as statuses, the stream's own deadline, compression."""
    seen = client(interpreter, "tritonclient_streams.py")
    in_order = [[str(index), float(index), True] for index in range(500)]
    for kind in ("many", "gzip", "asyncio"):
        assert seen[kind] == in_order, kind
    first, model, name, last = seen["errors"]
    assert [first, last] == [["identity_fp32", 1.0, True]] * 2
    assert model == ["None", "Request for unknown model: 'nothing' is not found"]
    assert name[0] == "None", "an error in a message has no status"
    assert "'y'" in name[1]
    answer, (status, text) = seen["strict"]
    assert answer == ["7", 7.0, True]
    assert (status, "'nothing' is not found" in text) == ("StatusCode.NOT_FOUND", True)
    assert [status for status, _ in seen["deadline"]] == ["StatusCode.DEADLINE_EXCEEDED"]


def test_sequences(client: ClientRun, interpreter: Path) -> None:
    """Ids that are numbers and texts: every way to ask, each sequence its own sums."""
    seen = client(interpreter, "tritonclient_sequences.py")
    sums = np.cumsum([1.0, 2.0, 3.0, 4.0]).tolist()
    for how in ("number", "large", "text", "stream", "text stream"):
        assert seen[how] == sums, how
    assert seen["asyncio"] == [sums] * 4
    status, text = seen["unstarted"]
    assert status == "StatusCode.INVALID_ARGUMENT"
    assert "must specify the START flag on the first request of the sequence" in text
