"""Reading config.pbtxt: what protobuf takes we take, and errors say where and why."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2 as triton_pb

from headrace.engines.pbtxt import MAX_CONFIG_BYTES, parse_config, read_config
from headrace.errors import ConfigError

WHOLE = """
# A configuration as people write it.
name: "m"
platform: "tensorrt_plan"
max_batch_size: 8
input [
  { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] },
  { name: 'y', data_type: TYPE_INT64; dims: 1 reshape { shape: [ ] } }
]
output { name: "z" data_type: TYPE_STRING dims: [ 1 ] label_filename: "labels.txt" }
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] profile: [ "0", "1" ] } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
version_policy: { specific { versions: [ 1, 3 ] } }
cc_model_filenames [ { key: "8.0" value: "a.plan" } ]
parameters: { key: "k" value: { string_value: "v" } }
"""


def failing(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, path="m/config.pbtxt")
    return caught.value


def test_reads_what_triton_s_own_messages_read() -> None:
    """A configuration parses to the same bytes as with the messages of Triton's client."""
    ours = parse_config(WHOLE, path="config.pbtxt")
    theirs = text_format.Parse(WHOLE, triton_pb.ModelConfig())
    assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(
        deterministic=True
    )


def test_an_enum_beyond_any_number_is_refused() -> None:
    """Protobuf raises an error of another kind there, without a place."""
    error = failing(f"input {{ data_type: {'9' * 500} }}")
    assert error.reason.startswith("cannot be read: Value out of range: 999")
    assert len(error.reason) < 300


@pytest.mark.parametrize(
    ("text", "place", "field", "reason"),
    [
        ('name: "a"\n\nmax_batch_siz: 8', "3:1", "max_batch_siz", "did you mean max_batch_size?"),
        (
            'input [\n  { name: "x" },\n  { name: "y"\n    data_type: TYPE_FP33 }\n]',
            "4:16",
            "input[1].data_type",
            "did you mean TYPE_FP32?",
        ),
        ('input { name: "x" reshape { shap: [1] } }', "1:29", "input[0].reshape.shap", "shape?"),
        ("max_batch_size: 99999999999", "1:17", "max_batch_size", "out of range"),
        ('max_batch_size: "8"', "1:17", "max_batch_size", "integer"),
        ('name: "a"\nname: "b"', "2:7", "name", "multiple"),
        ('input { name: "x"\n dims: [1,2\n', "3:1", "input[0].dims", "Expected"),
        (
            "version_policy { latest { num_versions: 1 } all { } }",
            "1:45",
            "version_policy.all",
            "latest",
        ),
        ('input { name: "x" dims: [ 1, 2, x ] }', "1:33", "input[0].dims", "x"),
        ("input { dims: [ 1 ] dim: 2 }", "1:21", "input[0].dim", "did you mean dims?"),
        ("input { }\ninput: 3", "2:8", "input[1]", "Expected"),
        ('name: "abc', "1:7", "name", "quote"),
        ("}", "1:1", None, "Expected"),
        ("instance_group { }\ninstance_group { count: x }", "2:25", "instance_group[1].count", "x"),
        (
            'parameters { key: "a" value { string_valu: "b" } }',
            "1:31",
            "parameters[0].value.string_valu",
            "string_value?",
        ),
        ("dynamic_batching { default_queue_policy { max_queue_size: -1 } }", "1:59", None, "-1"),
    ],
)
def test_an_error_names_file_line_field_and_reason(
    text: str, place: str, field: str | None, reason: str
) -> None:
    """Each kind of error says where it is, in which field, and what is wrong."""
    fault = failing(text)
    line, column = place.split(":")
    assert fault.path == "m/config.pbtxt"
    assert fault.reason.startswith(f"line {line}, column {column}: ")
    assert fault.field == (field or fault.field)
    assert reason in fault.reason
    assert "\n" not in str(fault)


@pytest.mark.parametrize("text", ["max_batch_size: x", "max_batch_size: x\n# more"])
def test_a_reason_is_said_once(text: str) -> None:
    """Without protobuf's own place and its copy of the source line."""
    assert failing(text).reason == "line 1, column 17: Couldn't parse integer: x"


def test_comments_and_strings_do_not_mislead_about_the_place() -> None:
    """Braces in comments and strings open no message."""
    fault = failing('# { [ \nname: "{[" # }\ninput { name: "}"\n foo: 1 }')
    assert fault.field == "input[0].foo"
    assert "line 4, column 2" in fault.reason


@given(st.text(alphabet=st.sampled_from("{}[]<>:,;\"#'\\ \n-1ax.") | st.characters(), max_size=80))
def test_any_text_is_a_configuration_or_a_config_error(text: str) -> None:
    """Garbage never raises anything but ConfigError."""
    with suppress(ConfigError):
        parse_config(text, path="f")


@given(st.data())
def test_a_damaged_configuration_is_a_configuration_or_a_config_error(data: st.DataObject) -> None:
    """One piece cut out or put in never raises anything but ConfigError."""
    start = data.draw(st.integers(0, len(WHOLE)))
    end = data.draw(st.integers(start, min(len(WHOLE), start + 20)))
    text = (
        WHOLE[:start]
        + data.draw(st.sampled_from(["", "{", "}", "[", '"', "name", ":"]))
        + WHOLE[end:]
    )
    try:
        ours = parse_config(text, path="f")
    except ConfigError:
        with pytest.raises(text_format.ParseError):
            text_format.Parse(text, triton_pb.ModelConfig())
    else:
        theirs = text_format.Parse(text, triton_pb.ModelConfig())
        assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(
            deterministic=True
        )


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    """A file that an editor began with a byte-order mark reads as without."""
    path = tmp_path / "config.pbtxt"
    path.write_bytes('\ufeffname: "m"'.encode())
    assert read_config(path).name == "m"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'name: "m"\n# caf\xe9\n', "line 2: byte 0xe9 is not UTF-8 text"),
        (b"#" * (MAX_CONFIG_BYTES + 1), f"larger than {MAX_CONFIG_BYTES} bytes"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    """Bytes that are not UTF-8 and files far too large are named as such."""
    path = tmp_path / "config.pbtxt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        read_config(path)


def test_the_largest_file_is_read(tmp_path: Path) -> None:
    """A file of exactly the limit is still read."""
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'name: "m"'.ljust(MAX_CONFIG_BYTES))
    assert read_config(path).name == "m"


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """Reading a pipe that nobody writes to would never end."""
    path = tmp_path / "config.pbtxt"
    os.mkfifo(path)
    faults: list[ConfigError] = []

    def read() -> None:
        try:
            read_config(path)
        except ConfigError as fault:
            faults.append(fault)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(5)
    assert [fault.reason for fault in faults] == ["is not a plain file"]


def test_a_file_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    """The operating system's reason is passed on."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_config(tmp_path / "config.pbtxt")
