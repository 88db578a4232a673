"""Our client against a running headrace, under each transport: every call, and true answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import magika
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from served_magika import ServedMagika, real_files, write_repository
from sklearn.datasets import load_digits

from headrace_client import CallFailed, Client, HealthStatus, InferenceFailed
from helpers.either_client import KINDS, open_client
from helpers.server import TRANSPORTS, Server, serving

MODELS = Path(__file__).parents[2] / "deploy" / "models"
PIXELS = load_digits().data[3::4].astype(np.float32)
TRUTH = load_digits().target[3::4]
ELEMENT_TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}
NUMERIC = [name for name in ELEMENT_TYPES if name != "BYTES"]


def write_mirror(path: Path, datatypes: Sequence[str]) -> None:
    """Write a model that gives every input back: one pair of tensors for each datatype."""
    value = helper.make_tensor_value_info
    pairs = [(name, f"{name}_out", ELEMENT_TYPES[name]) for name in datatypes]
    graph = helper.make_graph(
        [helper.make_node("Identity", [name], [out]) for name, out, _ in pairs],
        "mirror",
        [value(name, element, ["batch", 3]) for name, _, element in pairs],
        [value(out, element, ["batch", 3]) for _, out, element in pairs],
    )
    opset = helper.make_operatorsetid("", 17)
    path.parent.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)


@pytest.fixture(scope="module", params=TRANSPORTS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_repository(repository)
    write_mirror(repository / "mirror" / "1" / "model.onnx", NUMERIC)
    write_mirror(repository / "mirror_bytes" / "1" / "model.onnx", ["BYTES"])
    flags: list[str | Path] = ["--model-repository", MODELS, "--model-repository", repository]
    with serving(*flags, "--transport", request.param) as running:
        yield running


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    with open_client(request.param, server.address, timeout_s=15) as opened:
        yield opened


@pytest.mark.parametrize("num_rows", [1, 7, 64])
def test_digits_equal_onnx_runtime(client: Any, num_rows: int) -> None:
    """The served outputs are ONNX Runtime's, bit for bit, for batches of every size."""
    session = onnxruntime.InferenceSession(MODELS / "digits" / "1" / "model.onnx")
    rows = PIXELS[:num_rows]
    probabilities, label = session.run(["probabilities", "label"], {"input": rows})
    outputs = client.infer("digits", {"input": rows})
    assert list(outputs) == ["probabilities", "label"]
    assert outputs["probabilities"].tobytes() == probabilities.tobytes()
    assert np.array_equal(outputs["label"], label)


def test_digits_are_right(client: Any) -> None:
    """Of the images that training never saw, at least 97 % are answered correctly."""
    labels = [client.infer("digits", {"input": row[np.newaxis]})["label"] for row in PIXELS]
    assert np.mean(np.concatenate(labels)[:, 0] == TRUTH) >= 0.97


def test_magika_equals_the_package(server: Server) -> None:
    """Files of ten types get the labels and scores that the package itself gives."""
    with Client(server.address, timeout_s=15) as client:
        served = ServedMagika(client).identify_paths(real_files())
    alone = magika.Magika().identify_paths(real_files())
    labels = [str(result.output.label) for result in alone]
    assert len(set(labels)) == 10
    assert [str(result.output.label) for result in served] == labels
    scores = [result.score for result in alone]
    assert [result.score for result in served] == pytest.approx(scores, rel=1e-6)


def test_every_numeric_datatype_comes_back(client: Any) -> None:
    """Each datatype goes through the server unchanged, all in one request, outputs as asked."""
    sent = {
        name: np.array([[0, 1, 3]]).astype(helper.tensor_dtype_to_np_dtype(ELEMENT_TYPES[name]))
        for name in NUMERIC
    }
    sent["BF16"] = np.array([[1.5, -2, 1e30]], ml_dtypes.bfloat16)
    names = [f"{name}_out" for name in reversed(NUMERIC)]
    result = client.infer_full("mirror", sent, outputs=names, request_id="r1")
    assert (list(result.outputs), result.request_id) == (names, "r1")
    assert result.datatypes == {f"{name}_out": name for name in NUMERIC}
    for name, array in sent.items():
        assert result.outputs[f"{name}_out"].tobytes() == array.tobytes(), name


def test_bytes_come_back(client: Any) -> None:
    """Text and bytes of any length, none and NUL among them, go through the server unchanged."""
    outputs = client.infer("mirror_bytes", {"BYTES": [["", "wörld", b"a\0"]]})
    assert outputs["BYTES_out"].tolist() == [[b"", "wörld".encode(), b"a\0"]]


def test_state_of_server_and_models(client: Any) -> None:
    """Live, ready and health, of the server and of each model, and of one that is not there."""
    assert client.is_live()
    assert client.is_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")
    assert not client.is_model_ready("absent")
    assert client.health() is HealthStatus.SERVING
    assert client.health("digits") is HealthStatus.SERVING
    assert client.health("absent") is HealthStatus.SERVICE_UNKNOWN


def test_descriptions(client: Any) -> None:
    """Metadata, configuration and index describe what deploy/models holds."""
    assert client.server_metadata().name == "headrace"
    metadata = client.model_metadata("digits")
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [
        ("input", "FP32", [-1, 64])
    ]
    assert [(t.name, list(t.shape)) for t in metadata.outputs] == [
        ("probabilities", [-1, 10]),
        ("label", [-1, 1]),
    ]
    assert client.model_config("digits").max_batch_size == 64
    index = {(each.name, each.version, each.state) for each in client.repository_index()}
    assert index == {
        (name, "1", "READY") for name in ("digits", "magika", "mirror", "mirror_bytes")
    }


def test_statistics_count_rows(client: Any) -> None:
    """An inference of five rows adds five inferences, one success and one execution."""
    (before,) = client.statistics("digits")
    client.infer("digits", {"input": PIXELS[:5]})
    (after,) = client.statistics("digits")
    assert after.inference_count - before.inference_count == 5
    assert after.execution_count - before.execution_count == 1
    assert after.inference_stats.success.count - before.inference_stats.success.count == 1


def test_the_servers_words_reach_the_caller(client: Any) -> None:
    """A wrong request is refused with the code of the protocol, and a text about this request."""
    with pytest.raises(InferenceFailed, match="absent") as caught:
        client.infer("absent", {"input": PIXELS[:1]})
    assert caught.value.code is grpc.StatusCode.NOT_FOUND
    with pytest.raises(InferenceFailed, match="input") as caught:
        client.infer("digits", {"input": PIXELS[:1, :63]})
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(CallFailed, match="absent"):
        client.model_metadata("absent")
    assert np.array_equal(client.infer("digits", {"input": PIXELS[:1]})["label"], [[TRUTH[0]]])


def test_command(server: Server, tmp_path: Path) -> None:
    """The installed command asks the running server, and its exit code is the answer."""
    np.save(tmp_path / "input.npy", PIXELS[:2])

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("headrace-client")), *arguments]
        return subprocess.run(
            [*command, "-u", server.address],
            capture_output=True,
            text=True,
            timeout=15,
            check=False,
        )

    assert run("health").stdout == "SERVING\n"
    assert run("health", "absent").returncode == 1
    assert "digits" in run("models").stdout
    assert "[-1, 64]" in run("metadata", "digits").stdout
    done = run("infer", "digits", "-i", f"input=@{tmp_path / 'input.npy'}", "-o", "label", "--json")
    assert json.loads(done.stdout)["outputs"]["label"]["data"] == TRUTH[:2, np.newaxis].tolist()
