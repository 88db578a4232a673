"""Classes in the place of outputs, over a socket, as tritonclient asks for them and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from helpers.onnx_models import adds, save
from helpers.server import Server, ServerPool

CONFIG = """
backend: "onnxruntime"
max_batch_size: 8
input {name: "x" data_type: TYPE_FP32 dims: [4]}
output {name: "y" data_type: TYPE_FP32 dims: [4] label_filename: "names.txt"}
"""


@pytest.fixture(scope="session")
def labelled_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`y` = x + 0.5, with labels for three of four classes."""
    folder = tmp_path_factory.mktemp("labelled-model")
    save(adds(0.5), folder / "labelled/1/model.onnx")
    (folder / "labelled/config.pbtxt").write_text(CONFIG)
    (folder / "labelled/names.txt").write_text("Katze\r\nHund\ngrößte Maus\n", "utf-8")
    return folder


@pytest.fixture
def labelled(transport: str, servers: ServerPool, labelled_repository: Path) -> Server:
    """A server with that model."""
    return servers.get("--model-repository", labelled_repository, "--transport", transport)


@pytest.fixture
def labelled_client(labelled: Server) -> Iterator[triton.InferenceServerClient]:
    """Its client."""
    with triton.InferenceServerClient(labelled.address) as client:
        yield client


def ask(client: Any, array: Any, class_count: int) -> Any:
    x = triton.InferInput("x", array.shape, "FP32")
    x.set_data_from_numpy(array)
    wanted = [triton.InferRequestedOutput("y", class_count=class_count)]
    return client.infer("labelled", [x], outputs=wanted)


def test_the_top_classes_of_each_row(labelled_client: Any) -> None:
    """Value, index and label of the configured file; more than there are gives all."""
    scores = np.array([[0.5, 2.5, 1.5, 3.5], [9, 9, 0, -1]], np.float32)
    result = ask(labelled_client, scores, 3)
    assert result.as_numpy("y").tolist() == [
        [b"4.000000:3", b"3.000000:1:Hund", "2.000000:2:größte Maus".encode()],
        [b"9.500000:0:Katze", b"9.500000:1:Hund", "0.500000:2:größte Maus".encode()],
    ]
    (output,) = result.get_response().outputs
    assert (output.datatype, list(output.shape)) == ("BYTES", [2, 3])
    assert ask(labelled_client, scores[:1], 100).as_numpy("y").shape == (1, 4)


def test_the_tensor_itself_is_still_to_be_had(labelled_client: Any) -> None:
    """The same model without the parameter."""
    x = triton.InferInput("x", [1, 4], "FP32")
    x.set_data_from_numpy(np.zeros((1, 4), np.float32))
    assert labelled_client.infer("labelled", [x]).as_numpy("y").tolist() == [[0.5] * 4]


def test_no_classes_are_none(labelled_client: Any) -> None:
    """A negative number is the caller's fault; tritonclient sends no parameter for 0."""
    with pytest.raises(InferenceServerException, match="'classification' of output 'y' is -1"):
        ask(labelled_client, np.zeros((1, 4), np.float32), -1)


def test_it_is_named_among_the_extensions(labelled_client: Any) -> None:
    """Clients take that as a promise."""
    assert "classification" in labelled_client.get_server_metadata().extensions
