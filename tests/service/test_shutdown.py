"""The end of a server: nothing in flight is lost, nothing new begins, and there is a bound."""

from __future__ import annotations

import signal
import stat
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import grpc
import numpy as np
from grpc_health.v1 import health_pb2
from onnx import TensorProto, helper

from helpers import onnx_models
from helpers.rpc_client import RpcClient, arrays, infer_message, refused, slow_message, told
from helpers.server import Server, start
from load.models import write_repository

Code = grpc.StatusCode
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
LONG = 3000  # rounds: about half a second
ENDLESS = 1_000_000  # minutes


@contextmanager
def running(repository: Path, transport: str, *arguments: str) -> Iterator[Server]:
    """A server that the test ends itself."""
    server = start("--model-repository", repository, "--transport", transport, *arguments)
    try:
        server.wait_ready()
        server.metrics()  # the first scrape looks for GPUs, later ones are quick
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


def terminate(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)


def ended(server: Server, timeout_s: float = 20) -> int:
    code = server.process.wait(timeout_s)
    server._reader.join(5)
    return code


def wait_for(is_so: Callable[[], bool], timeout_s: float = 15) -> None:
    give_up_at = monotonic() + timeout_s
    while not is_so():
        assert monotonic() < give_up_at, "it did not come so far"


def live(client: RpcClient) -> tuple[Code, str]:
    try:
        client.ask("ServerLive")
    except grpc.RpcError as error:
        return refused(error)
    return Code.OK, ""


def test_what_is_in_is_finished_and_what_comes_is_refused(
    slow_repository: Path, transport: str
) -> None:
    """Requests in flight and queued get their answers after SIGTERM; the exit code is 0."""
    with (
        running(slow_repository, transport) as server,
        RpcClient(server.address) as client,
        RpcClient(server.address) as other,
    ):
        assert live(other) == (Code.OK, "")
        calls = [client.start(slow_message(LONG, [float(i)], request_id=str(i))) for i in range(4)]
        busy(server, 4)
        terminate(server)
        wait_for(lambda: live(other) == (Code.UNAVAILABLE, "Server exiting"))
        code, text = told(client.start(slow_message(1)))
        assert code is Code.UNAVAILABLE
        assert text == "GRPC server is shutting down and has stopped accepting new requests."
        for index, call in enumerate(calls):
            response = call.result()
            assert (response.id, arrays(response)["y"].tolist()) == (str(index), [index])
        assert ended(server) == 0
    assert "Traceback" not in server.output()


def busy(server: Server, num_requests: int) -> None:
    """Wait until so many requests are in the core: in flight, or behind those that are."""

    def is_so(metrics: dict[str, float]) -> bool:
        return (
            metrics["headrace_lanes_in_flight"] + metrics["headrace_queue_length"] == num_requests
        )

    assert is_so(server.wait_metrics(is_so)), server.output()


def test_large_replies_leave_before_the_door_closes(tmp_path: Path, transport: str) -> None:
    """Megabytes that are on their way when SIGTERM comes arrive whole."""
    repository = write_repository(tmp_path, ["identity_6mb"])
    sent = np.random.default_rng(1).integers(0, 256, (1, 3, 1080, 1920), np.uint8)
    message = infer_message("identity_6mb", {"x": sent})
    with running(repository, transport) as server, RpcClient(server.address) as client:
        calls = [client.start(message) for _ in range(6)]
        server.wait_metrics(lambda metrics: metrics["nv_inference_request_success"] > 0)
        terminate(server)
        ends = [told(call) for call in calls]
        assert ended(server) == 0
    assert all(code is Code.OK or "shutting down" in text for code, text in ends), ends
    answers = [
        call.result() for call, (code, _) in zip(calls, ends, strict=True) if code is Code.OK
    ]
    assert answers
    assert all(np.array_equal(arrays(answer)["y"], sent) for answer in answers)


def test_a_lame_duck_is_not_ready_and_serves(slow_repository: Path, transport: str) -> None:
    """Every probe says so at once, watchers are told, and requests are answered until its end."""
    with (
        running(slow_repository, transport, "--lame-duck-secs", "1.5") as server,
        RpcClient(server.address) as client,
    ):
        watched = [client.watch(service) for service in ("", "slow")]
        assert [next(watch).status for watch in watched] == [SERVING] * 2
        terminate(server)
        assert [next(watch).status for watch in watched] == [NOT_SERVING] * 2
        assert not client.ask("ServerReady").ready
        assert client.ask("ServerLive").live
        assert ready_probe(server) == 503
        assert client.check("slow") == NOT_SERVING
        assert arrays(client.start(slow_message(1, [7.0])).result())["y"].tolist() == [7.0]
        assert ended(server) == 0
        for watch in watched:  # an open stream did not hold the end up for the exit timeout
            assert list(watch) == []
            assert watch.code() is Code.OK


def ready_probe(server: Server) -> int:
    try:
        with urllib.request.urlopen(f"http://{server.metrics_address}/v2/health/ready") as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_exit_timeout_is_a_bound(slow_repository: Path, transport: str) -> None:
    """A request that would take minutes is given up, its caller told, and the exit code is 1."""
    with (
        running(slow_repository, transport, "--exit-timeout-secs", "0.2") as server,
        RpcClient(server.address) as client,
    ):
        calls = [client.start(slow_message(ENDLESS)) for _ in range(3)]
        busy(server, 3)
        terminate(server)
        assert ended(server) == 1
        assert {told(call)[0] for call in calls} == {Code.UNAVAILABLE}
    assert "still in flight after 0.2 s" in server.output()
    assert "Traceback" not in server.output()


def test_a_second_signal_ends_at_once(slow_repository: Path) -> None:
    """Whatever is in flight; not with 0."""
    with running(slow_repository, "grpcio") as server, RpcClient(server.address) as client:
        call = client.start(slow_message(ENDLESS))
        busy(server, 1)
        terminate(server)
        wait_for(lambda: "draining" in server.output())
        terminate(server)
        assert ended(server) == 1
        assert told(call)[0] is Code.UNAVAILABLE
    assert "second signal" in server.output()


def test_a_signal_during_the_load_ends_it(tmp_path: Path) -> None:
    """Although the load is in the middle of a run that takes minutes."""
    built = onnx_models.slow()
    (least,) = [node for node in built.graph.node if node.output[0] == "least"]
    least.attribute[0].t.CopyFrom(helper.make_tensor("v", TensorProto.INT64, [1], [ENDLESS]))
    onnx_models.save(built, tmp_path / "slow/1/model.onnx")
    (tmp_path / "slow/config.pbtxt").write_text(onnx_models.SLOW_CONFIG)
    server = start("--model-repository", tmp_path)
    try:
        wait_for(lambda: "device" in server.output())
        terminate(server)
        assert ended(server) == 0
        assert "told to stop while loading" in server.output()
        assert "ready" not in server.output()
    finally:
        if server.process.poll() is None:
            server.kill()


def test_the_native_door_leaves_nothing_behind(slow_repository: Path, tmp_path: Path) -> None:
    """The folder of its inner socket is this user's alone, and gone in the end."""
    server = start(
        "--model-repository",
        slow_repository,
        "--transport=native",
        env={"TMPDIR": str(tmp_path)},
    )
    try:
        server.wait_ready()
        (folder,) = tmp_path.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_ISSOCK((folder / "behind.sock").stat().st_mode)
        assert server.stop() == 0
        assert list(tmp_path.iterdir()) == []
    finally:
        if server.process.poll() is None:
            server.kill()
