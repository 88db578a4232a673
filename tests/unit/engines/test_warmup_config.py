"""`model_warmup`: every fault is named with its field, and the data are those that it asks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.engines.warmup_config import (
    MAX_RUNS,
    SampleInput,
    check_warmup,
    data_path,
    samples_of,
)
from headrace.engines.warmup_data import row_data
from headrace.errors import ConfigError
from headrace_proto.datatypes import DATATYPES
from helpers.model_repository import config_of

TENSORS = """
input { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] }
input { name: "n" data_type: TYPE_INT64 dims: 1 }
"""
X = 'inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 2, 3 ] zero_data: true } }'
N = 'inputs { key: "n" value { data_type: TYPE_INT64 dims: 1 random_data: true } }'


def with_file(name: str) -> str:
    return X.replace("zero_data: true", f'input_data_file: "{name}"')


def warmup(text: str, max_batch_size: int = 4, tensors: str = TENSORS) -> str:
    return f"max_batch_size: {max_batch_size} {tensors} model_warmup {{ {text} }}"


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        (f"batch_size: 5 {X} {N}", "batch_size", "5 is more than the model takes, 4"),
        (f"batch_size: 1 count: 10001 {X} {N}", "count", f"{MAX_RUNS} is the most"),
        (f"batch_size: 1 {X}", "inputs", 'the model needs "n", which is missing'),
        (
            f'batch_size: 1 {X} {N} inputs {{ key: "z" value {{ zero_data: true }} }}',
            'inputs["z"]',
            "no such input; it takes n, x",
        ),
        (
            f"batch_size: 1 {N} {X.replace('FP32', 'FP16')}",
            'inputs["x"].data_type',
            "TYPE_FP16 came, but the model takes TYPE_FP32",
        ),
        (
            f"batch_size: 1 {N} {X.replace('2, 3', '2, 4')}",
            'inputs["x"].dims',
            "[2, 4] do not fit the input's dims, [-1, 3]",
        ),
        (
            f"batch_size: 1 {N} {X.replace('2, 3', '1, 2, 3')}",
            'inputs["x"].dims',
            "[1, 2, 3] do not fit",
        ),
        (f"batch_size: 1 {N} {X.replace('2, 3', '-1, 3')}", 'inputs["x"].dims', "1 or more"),
        (f"batch_size: 1 {N} {X.replace('2, 3', '0, 3')}", 'inputs["x"].dims', "1 or more"),
        (
            f"batch_size: 1 {N} {X.replace('zero_data: true', '')}",
            'inputs["x"]',
            "needs one of zero_data, random_data and input_data_file",
        ),
        *(
            (
                f"batch_size: 1 {N} {with_file(name)}",
                'inputs["x"].input_data_file',
                "leads out of the model's folder",
            )
            for name in ("/etc/passwd", "../x", "a/../../x", r"a\000b")
        ),
        (
            f"batch_size: 1 {N} {with_file('')}",
            'inputs["x"].input_data_file',
            "names no file",
        ),
    ],
)
def test_a_fault_is_named_with_its_field(text: str, field: str, reason: str) -> None:
    """One fault each, in the configuration's own notation."""
    ((got, why),) = check_warmup(config_of(warmup(text)))
    assert (got, reason in why) == (f"model_warmup[0].{field}", True), why


def test_without_batches_there_is_one_row() -> None:
    """0 and 1 mean the same, more is a fault."""
    whole = TENSORS
    for size in (0, 1):
        config = config_of(warmup(f"batch_size: {size} {X} {N}", 0, whole))
        assert list(check_warmup(config)) == []
        (sample,) = samples_of(config)
        assert (sample.rows, sample.inputs["x"].shape) == (1, (2, 3))
    ((field, _),) = check_warmup(config_of(warmup(f"batch_size: 2 {X} {N}", 0, whole)))
    assert field == "model_warmup[0].batch_size"


def test_a_sample_of_no_rows_is_passed_over() -> None:
    """As in Triton: whatever else it says."""
    config = config_of(warmup('name: "off"'))
    assert list(check_warmup(config)) == []
    assert samples_of(config) == []


def test_inputs_that_are_not_known_yet_are_not_asked_for() -> None:
    """A configuration that is completed from the model is held against it then."""
    assert list(check_warmup(config_of(warmup(f"batch_size: 1 {X}", tensors="")))) == []


def test_a_sample() -> None:
    """Shapes have the batch first, but not those of shape tensors."""
    tensors = TENSORS.replace("dims: 1 }", "dims: 1 is_shape_tensor: true }")
    config = config_of(warmup(f'name: "s" batch_size: 3 count: 7 {X} {N}', tensors=tensors))
    (sample,) = samples_of(config)
    assert (sample.name, sample.rows, sample.count) == ("s", 3, 7)
    assert sample.field == "model_warmup[0]"
    x, n = sample.inputs["x"], sample.inputs["n"]
    assert (x.shape, x.rows, x.size_bytes, x.kind) == ((3, 2, 3), 3, 24, "zero_data")
    assert (n.shape, n.rows, n.size_bytes, n.kind) == ((1,), 1, 8, "random_data")


@pytest.mark.parametrize("datatype", DATATYPES)
def test_zeros_and_random_numbers(datatype: str, tmp_path: Path) -> None:
    """Of every datatype, so many bytes as the shape needs; random strings are empty ones."""
    itemsize = DATATYPES[datatype].itemsize_bytes or 4
    zero, random = (
        row_data(SampleInput((50, 2), 1, datatype, kind), tmp_path)
        for kind in ("zero_data", "random_data")
    )
    assert zero == bytes(100 * itemsize)
    assert len(random) == 100 * itemsize
    if datatype == "BYTES":
        assert random == zero
    else:
        assert len(set(random)) > 1
    if datatype == "BF16":
        floats = (np.frombuffer(random, np.uint16).astype(np.uint32) << 16).view(np.float32)
        assert ((floats >= 0) & (floats <= 1)).all()
    elif DATATYPES[datatype].numpy.kind in "fb":
        values = np.frombuffer(random, DATATYPES[datatype].numpy)
        assert ((values >= 0) & (values <= 1)).all()


def given(datatype: str = "FP32", shape: tuple[int, ...] = (3,)) -> SampleInput:
    return SampleInput(shape, 2, datatype, "input_data_file", "x.bin")


def write(folder: Path, content: bytes) -> None:
    (folder / "warmup").mkdir(exist_ok=True)
    (folder / "warmup/x.bin").write_bytes(content)


def test_a_file_holds_one_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The rest of a longer one is not used, which is told."""
    content = np.arange(3, dtype=np.float32).tobytes()
    write(tmp_path, content)
    assert row_data(given(), tmp_path) == content
    assert caplog.text == ""
    write(tmp_path, content + b"more")
    assert row_data(given(), tmp_path) == content
    assert "is longer than one row, 12 bytes" in caplog.text


def test_a_file_of_strings(tmp_path: Path) -> None:
    """Each with its length before it, so many as the shape says."""
    content = b"\2\0\0\0ab\0\0\0\0"
    write(tmp_path, content)
    assert row_data(given("BYTES", (2,)), tmp_path) == content
    with pytest.raises(ConfigError, match=r"warmup/x\.bin"):
        row_data(given("BYTES", (3,)), tmp_path)


def test_a_file_that_cannot_serve(tmp_path: Path) -> None:
    """Absent, short, or no file: the error has its path."""
    with pytest.raises(ConfigError, match=r"warmup/x\.bin: cannot be read: No such file"):
        row_data(given(), tmp_path)
    write(tmp_path, bytes(11))
    with pytest.raises(ConfigError, match=r"has 11 bytes, but one row of FP32 \[3\] has 12"):
        row_data(given(), tmp_path)
    (tmp_path / "warmup/x.bin").unlink()
    (tmp_path / "warmup/x.bin").mkdir()
    with pytest.raises(ConfigError, match="is not a plain file"):
        row_data(given(), tmp_path)


def test_a_name_that_no_file_can_have_is_a_file_that_is_missing(tmp_path: Path) -> None:
    """The system's own error is no answer."""
    (tmp_path / "warmup").mkdir()
    config = config_of(warmup(f"batch_size: 1 {N} {with_file('x' * 300)}"))
    ((_, reason),) = check_warmup(config, tmp_path)
    assert reason.startswith('there is no file "warmup/xxx')


def test_a_file_is_looked_for_where_the_folder_is_known(tmp_path: Path) -> None:
    """By `headrace check`, before anything is loaded."""
    config = config_of(warmup(f"batch_size: 1 {N} {with_file('x.bin')}"))
    assert list(check_warmup(config)) == []
    ((field, reason),) = check_warmup(config, tmp_path)
    assert field == 'model_warmup[0].inputs["x"].input_data_file'
    assert reason == 'there is no file "warmup/x.bin"'
    write(tmp_path, bytes(24))
    assert list(check_warmup(config, tmp_path)) == []


def test_a_file_lies_in_the_warmup_folder(tmp_path: Path) -> None:
    """Or in one below it."""
    assert data_path("a/x.bin", tmp_path) == tmp_path / "warmup/a/x.bin"
    assert data_path("./x.bin", tmp_path) == tmp_path / "warmup/x.bin"
