"""Models loaded, swapped and unloaded over the wire, by tritonclient, while others are served."""

from __future__ import annotations

import json
import queue
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2
from tritonclient.utils import InferenceServerException

from headrace_client import CallFailed
from headrace_client.cli import main
from helpers import onnx_models
from helpers.either_client import KINDS, open_client
from helpers.rpc_client import RpcClient, infer_message, refused, slow_message
from helpers.server import NO_DEBUG, Server, serving, start

Code = grpc.StatusCode
Health = health_pb2.HealthCheckResponse
ROW = np.zeros((1, 4), np.float32)
EXPLICIT = ("--model-control-mode", "explicit")
WAIT_S = 20.0


def put(folder: Path, version: int, value: float, name: str = "m") -> Path:
    """A version that adds a value."""
    return onnx_models.save(onnx_models.adds(value), folder / f"{name}/{version}/model.onnx")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with `m`, which adds 1."""
    put(tmp_path, 1, 1)
    return tmp_path


@contextmanager
def controlled(
    folder: Path, transport: str, *more: str, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[Server, Any, RpcClient]]:
    """A server in explicit mode, tritonclient's client of it and a plain one."""
    options: list[str | Path] = ["--model-repository", folder, "--transport", transport]
    with (
        serving(*options, *EXPLICIT, *more, env={**NO_DEBUG, **env}) as server,
        RpcClient(server.address) as client,
        triton.InferenceServerClient(server.address) as admin,
    ):
        yield server, admin, client


def added(client: RpcClient, name: str = "m", **more: Any) -> float:
    """What a model adds to zero."""
    return float(client.infer(name, {"x": ROW}, **more)["y"][0, 0])


def health(client: RpcClient) -> int:
    """Of `m`."""
    status: int = next(client.watch("m")).status
    return status


def states(admin: Any) -> dict[tuple[str, str], str]:
    """State by model and version."""
    index = admin.get_model_repository_index(as_json=True).get("models", [])
    return {(each["name"], each.get("version", "")): each.get("state", "") for each in index}


def code_of(error: InferenceServerException) -> str:
    return str(error.status())


def test_a_model_s_life(folder: Path, transport: str) -> None:
    """Nothing at first; loaded, loaded anew, unloaded; health and metrics follow."""
    with controlled(folder, transport) as (server, admin, client):
        assert admin.is_server_ready()
        assert states(admin) == {("m", ""): ""}
        assert health(client) == Health.SERVICE_UNKNOWN
        admin.load_model("m")
        assert (added(client), admin.is_model_ready("m")) == (1, True)
        assert health(client) == Health.SERVING
        put(folder, 2, 2)
        admin.load_model("m")
        assert added(client) == 2
        admin.unload_model("m", unload_dependents=True)
        assert not admin.is_model_ready("m")
        assert admin.is_server_ready()
        assert health(client) == Health.SERVICE_UNKNOWN
        call = client.start(infer_message("m", {"x": ROW}))
        assert call.code() == Code.NOT_FOUND
        seen = server.wait_metrics(lambda metrics: "nv_inference_count" not in metrics)
        assert "headrace_queue_length" not in seen
        assert states(admin) == {("m", "1"): "UNAVAILABLE", ("m", "2"): "UNAVAILABLE"}


def test_what_is_loaded_at_the_start(folder: Path, transport: str) -> None:
    """By name, or everything; what is not there ends the server."""
    put(folder, 1, 2, "n")
    with controlled(folder, transport, "--load-model", "n") as (_, admin, _client):
        assert states(admin) == {("n", "1"): "READY", ("m", ""): ""}
    with controlled(folder, transport, "--load-model=*") as (_, admin, _client):
        assert states(admin) == {("n", "1"): "READY", ("m", "1"): "READY"}
    server = start("--model-repository", folder, *EXPLICIT, "--load-model", "nothing")
    assert server.process.wait(WAIT_S) != 0
    assert "failed to load 'nothing'" in server.output()


def test_a_failed_load_changes_nothing(folder: Path, transport: str) -> None:
    """The caller is told why, and what served serves on."""
    with controlled(folder, transport, "--load-model", "m") as (_, admin, client):
        put(folder, 2, 2).write_bytes(b"half of a mod")
        with pytest.raises(InferenceServerException, match="load failed for model 'm'") as caught:
            admin.load_model("m")
        assert code_of(caught.value) == "StatusCode.INVALID_ARGUMENT"
        with pytest.raises(InferenceServerException, match="failed to poll from") as caught:
            admin.load_model("nothing")
        assert code_of(caught.value) == "StatusCode.INTERNAL"
        assert (added(client), admin.is_server_ready()) == (1, True)
        assert states(admin) == {("m", "1"): "READY", ("m", "2"): "UNAVAILABLE"}


def test_a_configuration_and_files_of_the_client(
    folder: Path, transport: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As tritonclient sends them; the private folder is gone with the server."""
    content, private = onnx_models.adds(7).SerializeToString(), tmp_path_factory.mktemp("private")
    env = {"TMPDIR": str(private)}
    with controlled(folder, transport, "--allow-model-uploads", env=env) as (_, admin, client):
        admin.load_model("m", config=json.dumps({"max_batch_size": 3}))
        assert admin.get_model_config("m").config.max_batch_size == 3
        admin.load_model("sent", config="{}", files={"file:1/model.onnx": content})
        assert added(client, "sent") == 7
        (uploads,) = private.glob("headrace-models-*")
        assert uploads.stat().st_mode & 0o777 == 0o700
        with pytest.raises(InferenceServerException, match="cannot be used with files") as caught:
            admin.load_model("m", config="{}", files={"file:../model.onnx": content})
        assert code_of(caught.value) == "StatusCode.INVALID_ARGUMENT"
        assert added(client) == 1
    assert list(private.iterdir()) == []


def test_files_that_a_killed_server_left_go_when_the_next_starts(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A second signal ends the process at once, as a kill does; those of living servers stay."""
    content, private = onnx_models.adds(7).SerializeToString(), tmp_path_factory.mktemp("private")
    env = {"TMPDIR": str(private), **NO_DEBUG}
    options = ("--model-repository", folder, *EXPLICIT, "--allow-model-uploads")
    killed = start(*options, env=env)
    killed.wait_ready()
    with serving(*options, env=env) as living, RpcClient(living.address) as client:
        for address in (killed.address, living.address):
            with triton.InferenceServerClient(address) as admin:
                admin.load_model("sent", config="{}", files={"file:1/model.onnx": content})
        killed.kill()
        assert len(list(private.glob("headrace-models-*"))) == 2
        with serving(*options, env=env):
            assert len(list(private.glob("headrace-models-*"))) == 1
            assert added(client, "sent") == 7
    assert list(private.glob("headrace-models-*")) == []


def test_files_are_refused_unless_the_operator_takes_them(folder: Path, transport: str) -> None:
    """UNIMPLEMENTED, with the option that would."""
    with controlled(folder, transport) as (_, admin, _client):
        with pytest.raises(InferenceServerException, match="--allow-model-uploads") as caught:
            admin.load_model("m", config="{}", files={"file:1/model.onnx": b"x"})
        assert code_of(caught.value) == "StatusCode.UNIMPLEMENTED"


def test_a_model_cannot_read_files_of_the_machine(folder: Path, transport: str) -> None:
    """Weights that lie outside of its folder are refused, whatever names them."""
    secret = folder / "secret.bin"
    secret.write_bytes(b"S" * 64)
    with controlled(folder, transport, "--allow-model-uploads") as (_, admin, _client):
        for location in (str(secret), "../../../" * 5 + str(secret)[1:], "/proc/self/environ"):
            content = onnx_models.reads(location).SerializeToString()
            with pytest.raises(InferenceServerException, match="load failed"):
                admin.load_model("thief", config="{}", files={"file:1/model.onnx": content})
        assert not admin.is_model_ready("thief")


@pytest.mark.parametrize("kind", KINDS)
def test_our_client(folder: Path, transport: str, kind: str) -> None:
    """Loads, sends, unloads; a failure is an error with the server's words."""
    content = onnx_models.adds(5).SerializeToString()
    with (
        controlled(folder, transport, "--allow-model-uploads") as (server, _, _client),
        open_client(kind, server.address, timeout_s=WAIT_S) as client,
    ):
        client.load_model("m")
        assert client.infer("m", {"x": ROW})["y"][0, 0] == 1
        client.load_model("m", config={"max_batch_size": 2}, files={"1/model.onnx": content})
        assert client.infer("m", {"x": ROW})["y"][0, 0] == 5
        with pytest.raises(CallFailed, match="failed to poll from model repository"):
            client.load_model("nothing")
        client.unload_model("m")
        assert not client.is_model_ready("m")


def test_our_command(
    folder: Path, transport: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`headrace-client load`, `models` and `unload`; what cannot be read is told before."""
    (tmp_path / "config.json").write_text('{"max_batch_size": 3}')
    model = onnx_models.save(onnx_models.adds(5), tmp_path / "sent.onnx")
    with controlled(folder, transport, "--allow-model-uploads") as (server, _, client):
        url = ("-u", server.address)
        assert main(["load", "m", *url]) == 0
        sending = ["--config", str(tmp_path / "config.json"), "--file", f"1/model.onnx={model}"]
        assert main(["load", "sent", *url, *sending]) == 0
        assert added(client, "sent") == 5
        assert main(["unload", "m", *url]) == 0
        assert capsys.readouterr().out.split("\n")[:3] == [
            "m is loaded",
            "sent is loaded",
            "m is unloaded",
        ]
        assert main(["load", "nothing", *url]) == 1
        assert "failed to poll from model repository" in capsys.readouterr().err
        for wrong in (["--file", "x"], ["--file", "1/x=gone"], ["--config", "gone"]):
            assert main(["load", "m", *url, *wrong]) == 1
            assert capsys.readouterr().err


def test_swaps_under_load_lose_no_request(folder: Path, transport: str) -> None:
    """Every answer is right for the version that it names; unary and in a stream."""
    with controlled(folder, transport, "--load-model", "m") as (server, admin, _client):
        is_over = threading.Event()
        answers: list[tuple[float, str]] = []
        callers = [
            threading.Thread(target=ask, args=(server.address, is_over, answers))
            for ask in (ask_on, ask_on, ask_in_a_stream, ask_in_a_stream)
        ]
        for caller in callers:
            caller.start()
        for number in range(2, 22):
            seen = len(answers)
            put(folder, number, number)
            admin.load_model("m")
            while len(answers) < seen + 20 and any(caller.is_alive() for caller in callers):
                is_over.wait(0.001)
        is_over.set()
        for caller in callers:
            caller.join(WAIT_S)
    assert [answer for answer in answers if answer[0] != float(answer[1])] == []
    assert {version for _, version in answers} == {str(number) for number in range(1, 22)}


def ask_on(address: str, is_over: threading.Event, answers: list[tuple[float, str]]) -> None:
    """Ask until it is over; an error is noted as a wrong answer."""
    x = triton.InferInput("x", ROW.shape, "FP32")
    x.set_data_from_numpy(ROW)
    with triton.InferenceServerClient(address) as client:
        while not is_over.is_set():
            try:
                result = client.infer("m", [x])
            except InferenceServerException as error:
                answers.append((float("nan"), f"-1  # {error}"))
                return
            answers.append((float(result.as_numpy("y")[0, 0]), result.get_response().model_version))


def ask_in_a_stream(
    address: str, is_over: threading.Event, answers: list[tuple[float, str]]
) -> None:
    """The same, in one stream that stays open over all swaps."""
    x = triton.InferInput("x", ROW.shape, "FP32")
    x.set_data_from_numpy(ROW)
    came: queue.Queue[tuple[float, str]] = queue.Queue()

    def note(result: Any, error: InferenceServerException | None) -> None:
        if error is not None:
            came.put((float("nan"), f"-1  # {error}"))
        else:
            version = result.get_response().model_version
            came.put((float(result.as_numpy("y")[0, 0]), version))

    with triton.InferenceServerClient(address) as client:
        client.start_stream(note)
        while not is_over.is_set():
            for _ in range(3):
                client.async_stream_infer("m", [x])
            answers += [came.get(timeout=WAIT_S) for _ in range(3)]
        client.stop_stream()


def test_a_request_in_flight_is_answered_by_the_version_that_took_it(
    tmp_path: Path, transport: str
) -> None:
    """Though another took its place, or the model was unloaded, meanwhile."""
    onnx_models.save(onnx_models.slow(), tmp_path / "slow/1/model.onnx")
    (tmp_path / "slow/config.pbtxt").write_text(onnx_models.SLOW_CONFIG)
    with controlled(tmp_path, transport, "--load-model", "slow") as (_, admin, client):
        calls = [client.start(slow_message(2000)) for _ in range(3)]
        shutil.copytree(tmp_path / "slow/1", tmp_path / "slow/2")
        admin.load_model("slow")
        late = client.start(slow_message(1))
        assert late.result().model_version == "2"
        admin.unload_model("slow")
        assert [call.result().model_version for call in calls] == ["1"] * 3


def test_polling(folder: Path, transport: str) -> None:
    """What is put into the repository is served, what is taken out is not; loads are refused."""
    options = ("--model-repository", folder, "--transport", transport)
    poll = ("--model-control-mode", "poll", "--repository-poll-secs", "1")
    with serving(*options, *poll, env=NO_DEBUG) as server, RpcClient(server.address) as client:
        assert added(client) == 1
        put(folder, 2, 2)
        assert comes(lambda: added(client) == 2)
        put(folder, 1, 3, "n")
        shutil.rmtree(folder / "m")
        assert comes(lambda: not client.ask("ModelReady", name="m").ready)
        assert comes(lambda: client.ask("ModelReady", name="n").ready)
        assert added(client, "n") == 3
        with pytest.raises(grpc.RpcError) as caught:
            client.ask("RepositoryModelLoad", model_name="n")
        code, text = refused(caught.value)
        assert (code, "--model-control-mode=poll" in text) == (Code.UNAVAILABLE, True)


def comes(is_so: Callable[[], bool]) -> bool:
    """Whether something comes about."""
    give_up_at = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_at:
        if is_so():
            return True
    return False


def test_loading_a_model_for_the_first_time_is_not_being_ready(
    folder: Path, transport: str
) -> None:
    """A failed one neither, until it is unloaded; the port of metrics says the same."""
    with controlled(folder, transport, "--load-model", "m") as (server, admin, _client):
        put(folder, 1, 1, "bad").write_bytes(b"x")
        with pytest.raises(InferenceServerException):
            admin.load_model("bad")
        assert not admin.is_server_ready()
        admin.unload_model("bad")
        assert admin.is_server_ready()
        url = f"http://{server.metrics_address}/v2/health/ready"
        with urllib.request.urlopen(url, timeout=5) as reply:
            assert reply.status == 200


def test_a_load_while_the_server_stops_is_refused(folder: Path, transport: str) -> None:
    """UNAVAILABLE, and the end is as quick as ever."""
    options = ("--model-repository", folder, "--transport", transport, *EXPLICIT)
    server = start(*options, "--lame-duck-secs", "2", env=NO_DEBUG)
    server.wait_ready()
    with triton.InferenceServerClient(server.address) as admin:
        server.process.terminate()
        assert comes(lambda: not admin.is_server_ready())
        with pytest.raises(InferenceServerException, match="shutting down") as caught:
            admin.load_model("m")
    assert code_of(caught.value) == "StatusCode.UNAVAILABLE"
    assert server.process.wait(WAIT_S) == 0
