"""Sequences over the wire: models that keep state, asked as tritonclient asks; sums by numpy."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

from helpers import onnx_models
from helpers.rpc_client import RpcClient, arrays, infer_message, refused
from helpers.scrape import Scrape
from helpers.server import TRANSPORTS, Server, ServerPool

Code = grpc.StatusCode
WAIT_S = 20.0

BRIEF = onnx_models.SUMS_CONFIG.replace("30000000", "50000")
OLDEST = onnx_models.SUMS_CONFIG.replace(
    "direct {}", "oldest {max_candidate_sequences: 64 max_queue_delay_microseconds: 2000}"
)
ONE = OLDEST.replace("sequences: 64", "sequences: 1") + "instance_group {count: 1 kind: KIND_CPU}"
FIRST = 'initial_state {name: "first" data_type: TYPE_FP32 dims: [4] data_file: "tens"}'
FROM_FILE = (
    onnx_models.SUMS_CONFIG.replace("max_batch_size: 4", "max_batch_size: 0").replace(
        "dims: [4]", f"dims: [-1] {FIRST}"
    )
    + """
    output [{name: "y" data_type: TYPE_FP32 dims: [4]},
            {name: "has" data_type: TYPE_FP32 dims: [4]}]
    model_warmup {
      name: "some" inputs {key: "x" value {data_type: TYPE_FP32 dims: [4] random_data: true}}}
    """
)
SMALLER = {
    "max_batch_size": 2,
    "sequence_batching": {
        "state": [
            {
                "input_name": "had",
                "output_name": "has",
                "data_type": "TYPE_FP32",
                "dims": [4],
            }
        ]
    },
}
TENS = np.full(4, 10, np.float32)


@pytest.fixture(scope="module")
def stateful_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that add what comes to what the sequence has, each served in another way."""
    folder = tmp_path_factory.mktemp("stateful")
    configs = {"sums": onnx_models.SUMS_CONFIG, "brief": BRIEF, "oldest": OLDEST, "one": ONE}
    for name, config in configs.items():
        onnx_models.save(onnx_models.sums(), folder / name / "1/model.onnx")
        (folder / name / "config.pbtxt").write_text(config)
    onnx_models.save(onnx_models.sums(has_rows=False), folder / "from_file/1/model.onnx")
    (folder / "from_file/config.pbtxt").write_text(FROM_FILE)
    (folder / "from_file/initial_state").mkdir()
    (folder / "from_file/initial_state/tens").write_bytes(TENS.tobytes())
    onnx_models.save(onnx_models.carries(), folder / "anonymous/1/model.onnx")
    (folder / "anonymous/config.pbtxt").write_text(onnx_models.CARRIES_CONFIG)
    onnx_models.save(onnx_models.adds(1), folder / "plain/1/model.onnx")
    return folder


@pytest.fixture(params=TRANSPORTS)
def stateful(
    request: pytest.FixtureRequest, servers: ServerPool, stateful_repository: Path
) -> Server:
    """A server with these."""
    where = ("--model-repository", stateful_repository, "--transport", str(request.param))
    return servers.get(*where, "--model-control-mode", "explicit", "--load-model=*")


@pytest.fixture
def client(stateful: Server) -> Iterator[RpcClient]:
    with RpcClient(stateful.address) as client:
        yield client


def row(number: float) -> Any:
    return np.full((1, 4), number, np.float32)


def part(sequence_id: int | str, *, start: bool = False, end: bool = False) -> dict[str, Any]:
    """The parameters of a part of a sequence."""
    return {"sequence_id": sequence_id, "sequence_start": start, "sequence_end": end}


def ask(client: RpcClient, model: str, number: float, parameters: dict[str, Any]) -> Any:
    """What a model answers to a row of a number."""
    return client.infer(model, {"x": row(number)}, parameters=parameters)


def error(client: RpcClient, model: str, parameters: dict[str, Any], rows: int = 1) -> Any:
    """How a request is refused."""
    message = infer_message(model, {"x": np.zeros((rows, 4), np.float32)}, parameters=parameters)
    with pytest.raises(grpc.RpcError) as raised:
        client.start(message).result()
    return refused(raised.value)


def tensor(number: float) -> Any:
    made = triton.InferInput("x", [1, 4], "FP32")
    made.set_data_from_numpy(row(number))
    return made


@pytest.mark.parametrize("model", ["sums", "oldest"])
def test_a_sequence_adds_up_and_its_controls_are_told(client: RpcClient, model: str) -> None:
    """Sums are numpy's; clients neither send nor see what is hidden."""
    numbers = [3.0, 0.5, -7.25, 100.0]
    for sequence_id in (11, 12):
        for place, number in enumerate(numbers):
            start, end = place == 0, place == len(numbers) - 1
            got = ask(client, model, number, part(sequence_id, start=start, end=end))
            assert list(got) == ["y", "told"]
            assert np.array_equal(got["y"], row(np.cumsum(np.array(numbers, np.float32))[place]))
            assert got["told"].tolist() == [[int(start), 1, int(end), sequence_id]]
    metadata = client.ask("ModelMetadata", name=model)
    assert [each.name for each in metadata.inputs] == ["x"]
    assert [each.name for each in metadata.outputs] == ["y", "told"]
    config = client.ask("ModelConfig", name=model).config
    assert config.WhichOneof("scheduling_choice") == "sequence_batching"


def test_it_starts_with_what_a_file_says_and_shows_its_state(client: RpcClient) -> None:
    """A model without a batch dimension, whose configuration lists the state's output."""
    for _ in range(2):
        for number, parameters in ((1.0, part(5, start=True)), (2.0, part(5, end=True))):
            x = np.full(4, number, np.float32)
            got = client.infer("from_file", {"x": x}, parameters=parameters)
            expected = TENS + np.float32(1.0 if number == 1.0 else 3.0)
            assert np.array_equal(got["y"], expected)
            assert np.array_equal(got["has"], expected)


def test_many_sequences_at_once_see_nothing_of_each_other(client: RpcClient) -> None:
    """All their requests are on the way together; the answer to each is its own sum."""
    ids = range(1, 21)
    calls = {}
    for place in range(5):
        for each in ids:
            message = infer_message(
                "sums",
                {"x": row(each)},
                parameters=part(each, start=place == 0, end=place == 4),
            )
            calls[each, place] = client.start(message)
            if place == 0:
                calls[each, place].result()  # the order of unary calls is nobody's promise
        for each in ids:
            calls[each, place].result()
    for (each, place), call in calls.items():
        (y, _) = call.result().raw_output_contents
        assert np.frombuffer(y, np.float32).tolist() == [each * (place + 1)] * 4


def test_wrong_requests_are_told_what_is_wrong(client: RpcClient) -> None:
    """With Triton's status and words."""
    told = error(client, "sums", part(77))
    assert told[0] is Code.INVALID_ARGUMENT
    text = "inference request for sequence 77 to model 'sums' must specify the START flag on the"
    assert told[1].startswith(text)
    assert "non-zero or non-empty correlation ID" in error(client, "sums", {})[1]
    assert "correlation ID" in error(client, "sums", part(0, start=True))[1]
    assert "correlation ID" in error(client, "sums", part("", start=True))[1]
    assert "is a string" in error(client, "sums", part("x", start=True))[1]
    assert "batch-size 1" in error(client, "sums", part(1, start=True), rows=2)[1]
    ask(client, "sums", 1.0, part(78, start=True, end=True))
    assert "START" in error(client, "sums", part(78))[1]


def test_a_model_without_state_takes_the_parameters(client: RpcClient) -> None:
    """And does nothing about them, as in Triton."""
    for parameters in (part(3), part("x", start=True), part(0)):
        got = client.infer("plain", {"x": row(1)}, parameters=parameters)
        assert np.array_equal(got["y"], row(2))


def test_an_idle_sequence_ends_though_nobody_asks(stateful: Server, client: RpcClient) -> None:
    """Then its place is free, and its next request has to begin anew."""
    expired = Scrape(stateful.metrics_address)("headrace_sequences_expired_total", model="brief")
    ask(client, "brief", 1.0, part(1, start=True))
    Scrape.when(
        stateful.metrics_address,
        lambda now: now("headrace_sequences_expired_total", model="brief") == expired + 1,
    )
    reading = Scrape(stateful.metrics_address)
    assert reading("headrace_sequences", model="brief", state="active") == 0
    assert "START" in error(client, "brief", part(1))[1]


def test_more_sequences_than_places_wait_for_one(stateful: Server, client: RpcClient) -> None:
    """The next begins when one has ended; meanwhile the other goes on."""
    ask(client, "one", 1.0, part(1, start=True))
    waiting = [
        client.start(
            infer_message("one", {"x": row(each)}, parameters=part(each, start=True, end=True))
        )
        for each in (2, 3)
    ]
    Scrape.when(
        stateful.metrics_address,
        lambda now: now("headrace_sequences", model="one", state="waiting") == 2,
    )
    assert np.array_equal(ask(client, "one", 1.0, part(1))["y"], row(2))
    assert not any(each.done() for each in waiting)
    ask(client, "one", 1.0, part(1, end=True))
    for each, call in zip((2, 3), waiting, strict=True):
        assert np.array_equal(arrays(call.result())["y"], row(each))


def test_loading_a_model_anew_ends_its_sequences(stateful: Server, client: RpcClient) -> None:
    """The text says so; others go on."""
    ask(client, "sums", 1.0, part(900, start=True))
    ask(client, "anonymous", 1.0, part(900, start=True))
    with triton.InferenceServerClient(stateful.address) as admin:
        admin.load_model("anonymous", config=json.dumps(SMALLER))
        code, text = error(client, "anonymous", part(900))
        assert code is Code.INVALID_ARGUMENT
        assert "when its model is loaded anew" in text
        assert admin.get_model_config("anonymous", as_json=True)["config"]["max_batch_size"] == 2
        admin.load_model("anonymous")
    assert np.array_equal(ask(client, "sums", 2.0, part(900, end=True))["y"], row(3))


def test_sequences_on_a_stream_and_by_callbacks(stateful: Server) -> None:
    """By tritonclient; requests of several sequences in a row, none waits for an answer."""
    came: queue.Queue[Any] = queue.Queue()
    with triton.InferenceServerClient(stateful.address) as client:
        client.start_stream(lambda result, error: came.put((result, error)))
        for place in range(10):
            for each in (201, 202, 203):
                client.async_stream_infer(
                    "sums",
                    [tensor(each)],
                    request_id=f"{each} {place}",
                    sequence_id=each,
                    sequence_start=place == 0,
                    sequence_end=place == 9,
                )
        for place in range(10):
            for each in (201, 202, 203):
                result, error = came.get(timeout=WAIT_S)
                assert error is None
                assert result.get_response().id == f"{each} {place}"
                assert np.array_equal(result.as_numpy("y"), row(each * (place + 1)))
        client.async_stream_infer("sums", [tensor(1)], sequence_id=201)
        assert "START" in str(came.get(timeout=WAIT_S)[1])
        client.stop_stream()


def test_text_ids_with_the_asyncio_client(stateful: Server) -> None:
    """A model that does not ask for the id takes any."""

    async def main() -> list[Any]:
        async with triton_aio.InferenceServerClient(stateful.address) as client:

            async def one(name: str, number: float) -> list[Any]:
                sums = []
                for place in range(4):
                    result = await client.infer(
                        "anonymous",
                        [tensor(number)],
                        sequence_id=name,
                        sequence_start=place == 0,
                        sequence_end=place == 3,
                    )
                    sums.append(float(result.as_numpy("y")[0, 0]))
                return sums

            return list(await asyncio.gather(*(one(f"camera {n}", float(n)) for n in range(8))))

    assert asyncio.run(main()) == [[n * 1.0, n * 2.0, n * 3.0, n * 4.0] for n in range(8)]
