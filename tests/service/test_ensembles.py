"""Ensembles over a socket, by tritonclient; right answers are ONNX Runtime's own."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnxruntime as ort
import pytest
import tritonclient.grpc as triton
from numpy.typing import NDArray
from onnx import helper
from tritonclient.utils import InferenceServerException

from helpers.control_rig import write_chain
from helpers.onnx_models import FLOAT, adds, busy, model, number, picks, port, save
from helpers.rpc_client import RpcClient, arrays, infer_message, told
from helpers.server import NO_DEBUG, TRANSPORTS, Server, serving
from helpers.shm_client import PREFIX, Memory

Floats = NDArray[np.float32]
ROW: tuple[int | str, ...] = ("batch", 4)
WORK_ROUNDS = 4  # about a millisecond
PARTS = """platform: "ensemble" max_batch_size: 4
input { name: "image" data_type: TYPE_FP32 dims: 4 }
output { name: "scores" data_type: TYPE_FP32 dims: 4 }
output { name: "scaled" data_type: TYPE_FP32 dims: 4 }
ensemble_scheduling {
  step { model_name: "join" model_version: -1
    input_map { key: "a" value: "high" } input_map { key: "b" value: "low" }
    output_map { key: "y" value: "scores" } }
  step { model_name: "split" model_version: -1 input_map { key: "x" value: "image" }
    output_map { key: "up" value: "scaled" } output_map { key: "down" value: "sunk" } }
  step { model_name: "tens" model_version: 1
    input_map { key: "x" value: "scaled" } output_map { key: "y" value: "high" } }
  step { model_name: "ones" model_version: -1
    input_map { key: "x" value: "sunk" } output_map { key: "y" value: "low" } }
}
"""
LOOKUP = """platform: "ensemble" max_batch_size: 0
input { name: "i" data_type: TYPE_INT64 dims: -1 }
output { name: "y" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling { step { model_name: "picks" model_version: -1
  input_map { key: "i" value: "i" } output_map { key: "y" value: "y" } } }
"""
PICKS = """backend: "onnxruntime"
input { name: "i" data_type: TYPE_INT64 dims: -1 }
output { name: "y" data_type: TYPE_FP32 dims: -1 }
"""
JOIN = """backend: "onnxruntime" max_batch_size: 8 dynamic_batching { }
input { name: "a" data_type: TYPE_FP32 dims: 4 } input { name: "b" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 4 label_filename: "names.txt" }
"""


def split() -> Any:
    """`x` → `up` = 3x, `down` = -x."""
    return model(
        [
            number("c", 3.0),
            helper.make_node("Mul", ["x", "c"], ["up"]),
            helper.make_node("Neg", ["x"], ["down"]),
        ],
        [port("x", FLOAT, ROW)],
        [port("up", FLOAT, ROW), port("down", FLOAT, ROW)],
    )


def join() -> Any:
    """`a`, `b` → `y` = a * b."""
    return model(
        [helper.make_node("Mul", ["a", "b"], ["y"])],
        [port("a", FLOAT, ROW), port("b", FLOAT, ROW)],
        [port("y", FLOAT, ROW)],
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four models, an ensemble of them, and one of a model whose run can fail."""
    folder = tmp_path_factory.mktemp("ensembles")
    for name, built in (("split", split()), ("join", join()), ("picks", picks())):
        save(built, folder / name / "1/model.onnx")
    for name, value in (("ones", 1), ("tens", 10)):
        save(adds(value), folder / name / "1/model.onnx")
    (folder / "join/config.pbtxt").write_text(JOIN)
    for name in ("work", "toil"):  # too long to run inline: each has threads of its own
        save(busy(WORK_ROUNDS), folder / name / "1/model.onnx")
    write_chain(folder, "labour", "work", "toil")
    (folder / "picks/config.pbtxt").write_text(PICKS)
    (folder / "join/names.txt").write_text("cat\ndog\nmouse\nbird\n")
    for name, config in (("a_parts", PARTS), ("lookup", LOOKUP)):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
    return folder


@pytest.fixture(scope="module", params=TRANSPORTS)
def server(request: pytest.FixtureRequest, repository: Path) -> Iterator[Server]:
    """A server of a transport, with everything loaded."""
    explicit = ("--model-control-mode", "explicit", "--load-model", "a_parts")
    more = ("--load-model", "lookup", "--load-model", "labour", "--transport", str(request.param))
    shm = ("--allow-client-shm", "--client-shm-key-prefix", PREFIX)
    options = (*explicit, *more, *shm)
    with serving("--model-repository", repository, *options, env=NO_DEBUG) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    """The client of Triton, of it."""
    with triton.InferenceServerClient(server.address) as client:
        yield client


def right(repository: Path, x: Floats) -> tuple[Floats, Floats]:
    """`scores` and `scaled`, by each model alone."""

    def run(name: str, **inputs: Floats) -> list[Floats]:
        session = ort.InferenceSession(repository / name / "1/model.onnx")
        outputs: list[Floats] = session.run(None, inputs)
        return outputs

    up, down = run("split", x=x)
    (high,), (low,) = run("tens", x=up), run("ones", x=down)
    return run("join", a=high, b=low)[0], up


def image(array: Floats) -> Any:
    tensor = triton.InferInput("image", array.shape, "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


def floats(seed: int, rows: int = 2) -> Floats:
    return np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)


def test_answers_are_those_of_its_models(client: Any, repository: Path) -> None:
    """All outputs, some of them, in any order; with an id."""
    x = floats(1, 3)
    scores, scaled = right(repository, x)
    result = client.infer("a_parts", [image(x)], request_id="seven")
    assert np.array_equal(result.as_numpy("scores"), scores)
    assert np.array_equal(result.as_numpy("scaled"), scaled)
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("seven", "a_parts", "1")
    wanted = [triton.InferRequestedOutput("scaled")]
    some = client.infer("a_parts", [image(x)], outputs=wanted)
    assert [output.name for output in some.get_response().outputs] == ["scaled"]
    assert np.array_equal(some.as_numpy("scaled"), scaled)


def test_tensors_in_shared_memory(client: Any, repository: Path) -> None:
    """In and out, as of any other model."""
    x = floats(5)
    size = x.nbytes
    with Memory(2 * size) as memory:
        memory.write(x.tobytes())
        client.register_system_shared_memory("both", memory.key, 2 * size)
        tensor = triton.InferInput("image", x.shape, "FP32")
        tensor.set_shared_memory("both", size)
        wanted = triton.InferRequestedOutput("scores")
        wanted.set_shared_memory("both", size, offset=size)
        client.infer("a_parts", [tensor], outputs=[wanted])
        client.unregister_system_shared_memory("both")
        scores = np.frombuffer(memory.read(size, size), np.float32).reshape(x.shape)
        assert np.array_equal(scores, right(repository, x)[0])


def test_many_at_a_time(client: Any, repository: Path) -> None:
    """Their steps share batches, and each gets its own."""
    answers: queue.SimpleQueue[tuple[int, Any, Any]] = queue.SimpleQueue()
    num_requests = 48
    for seed in range(num_requests):
        client.async_infer(
            "a_parts",
            [image(floats(seed))],
            callback=lambda result, error, seed=seed: answers.put((seed, result, error)),
        )
    for _ in range(num_requests):
        seed, result, error = answers.get(timeout=20)
        assert error is None
        assert np.array_equal(result.as_numpy("scores"), right(repository, floats(seed))[0])


def test_models_with_threads_of_their_own(client: Any, server: Server) -> None:
    """Their ends lead on from whatever thread they come; who leaves harms nobody."""
    with RpcClient(server.address) as plain:
        rows = [floats(seed, 1) for seed in range(12)]
        calls = [plain.start(infer_message("labour", {"x": row})) for row in rows]
        for call in calls[1::3]:
            call.cancel()
        late = plain.start(infer_message("labour", {"x": rows[0]}), timeout_s=0.0005)
        for index, call in enumerate(calls):
            if index % 3 != 1:
                assert np.array_equal(arrays(call.result())["y"], rows[index])
        assert told(late)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        assert np.array_equal(plain.infer("labour", {"x": rows[1]})["y"], rows[1])
    assert client.is_model_ready("labour")


def test_a_stream(client: Any, repository: Path) -> None:
    """Replies in the order of the requests; one that fails is told, and the others go on."""
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    wrong = triton.InferInput("i", [1], "INT64")
    wrong.set_data_from_numpy(np.array([99]))
    for seed in range(4):
        client.async_stream_infer("a_parts", [image(floats(seed))])
        client.async_stream_infer("lookup", [wrong])
    for seed in range(4):
        result, error = answers.get(timeout=20)
        assert error is None
        assert np.array_equal(result.as_numpy("scores"), right(repository, floats(seed))[0])
        _, error = answers.get(timeout=20)
        assert "in ensemble 'lookup', step 0 (model 'picks')" in str(error)
    client.stop_stream()


def test_an_error_names_the_step(client: Any, server: Server) -> None:
    """The model's own status; a wrong request is refused before any step."""
    with RpcClient(server.address) as plain:
        ended = told(plain.start(infer_message("lookup", {"i": np.array([1, 99])})))
        assert ended[0] is grpc.StatusCode.INTERNAL
        assert "in ensemble 'lookup', step 0 (model 'picks')" in ended[1]
        code, text = told(plain.start(infer_message("a_parts", {"image": np.zeros((1, 5), "f4")})))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "unexpected shape for input 'image' for model 'a_parts'" in text
        assert plain.infer("lookup", {"i": np.array([2])})["y"].tolist() == [20]
    failed = client.get_inference_statistics("lookup").model_stats[0].inference_stats.fail
    assert failed.count >= 1


def test_classes_with_the_labels_of_the_model(client: Any) -> None:
    """An output without labels of its own has those of the model that gives it."""
    x = np.array([[1, 2, 3, 4]], np.float32)
    wanted = [triton.InferRequestedOutput("scores", class_count=2)]
    result = client.infer("a_parts", [image(x)], outputs=wanted)
    classes = [text.decode().split(":")[1:] for text in result.as_numpy("scores")[0]]
    assert classes == [["0", "cat"], ["1", "dog"]]


def test_what_is_told_of_it(client: Any) -> None:
    """Metadata, configuration, statistics, readiness."""
    metadata = client.get_model_metadata("a_parts")
    assert (metadata.platform, list(metadata.versions)) == ("ensemble", ["1"])
    assert [list(tensor.shape) for tensor in metadata.inputs] == [[-1, 4]]
    config = client.get_model_config("a_parts").config
    steps = config.ensemble_scheduling.step
    assert [step.model_name for step in steps] == ["join", "split", "tens", "ones"]
    assert config.platform == "ensemble"
    assert client.is_model_ready("a_parts")

    def counts() -> dict[str, tuple[int, int, int]]:
        models = client.get_inference_statistics().model_stats
        return {
            each.name: (
                each.inference_count,
                each.execution_count,
                each.inference_stats.success.count,
            )
            for each in models
        }

    before = counts()
    client.infer("a_parts", [image(floats(0, 3))])
    after = counts()
    for name in ("a_parts", "split", "tens", "ones", "join"):
        grown = tuple(b - a for a, b in zip(before[name], after[name], strict=True))
        assert grown == (3, 1, 1), name
    (stats,) = client.get_inference_statistics("a_parts").model_stats
    assert stats.inference_stats.compute_infer.ns > 0
    assert stats.batch_stats


def test_its_models_come_and_go(client: Any) -> None:
    """Not ready while one is missing; ready again; taken away with its models at the end."""
    client.unload_model("tens")
    assert not client.is_model_ready("a_parts")
    assert not client.is_server_ready()
    with pytest.raises(InferenceServerException, match="not at ready state"):
        client.infer("a_parts", [image(floats(0))])
    states = {each.name: each for each in client.get_model_repository_index().models}
    assert states["a_parts"].state == "UNAVAILABLE"
    assert "it depends on 'tens'" in states["a_parts"].reason
    client.load_model("tens")
    assert client.is_model_ready("a_parts")
    client.infer("a_parts", [image(floats(0))])
    client.unload_model("a_parts", unload_dependents=True)
    assert not any(client.is_model_ready(name) for name in ("a_parts", "tens", "ones", "split"))
    assert client.is_model_ready("lookup")
    client.load_model("a_parts")
    client.infer("a_parts", [image(floats(0))])
