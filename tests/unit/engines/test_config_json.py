"""Configurations that clients send in JSON."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format, text_format
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.config_json import parse_json
from headrace.engines.pbtxt import MAX_CONFIG_BYTES
from headrace.errors import ConfigError
from headrace_proto.v1 import model_config_pb2 as config_pb
from helpers.model_repository import config_of

TEXT = """
    name: "m" max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [-1, 4] }
    instance_group { count: 2 kind: KIND_CPU }
    version_policy { specific { versions: [1, 3] } }
    dynamic_batching { max_queue_delay_microseconds: 100 }
    parameters { key: "k" value { string_value: "v" } }
"""


@pytest.mark.parametrize("as_in_file", [True, False])
def test_names_as_in_the_file_and_in_camel_case(as_in_file: bool) -> None:
    """Clients write either, 64-bit numbers as text or not."""
    config = config_of(TEXT)
    text = json_format.MessageToJson(config, preserving_proto_field_name=as_in_file)
    assert parse_json(text) == config


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no model configuration in JSON"),
        ("[]", "no model configuration in JSON"),
        ("null", "no model configuration in JSON"),
        ('{"max_batch_size": "many"}', "max_batch_size"),
        ('{"max_batch_sise": 8}', "max_batch_sise"),
        ('{"max_batch_size": 1, "max_batch_size": 2}', "max_batch_size"),
        ('{"max_batch_size": 1e99}', "max_batch_size"),
        ('{"input": {"name": "x"}}', "input"),
        ('{"name": "\ud800"}', "config override"),
        ("[" * 100_000, "config override"),
        ('{"a":' * 100_000, "config override"),
        (" " * (MAX_CONFIG_BYTES + 1), "is larger than"),
    ],
)
def test_what_is_no_configuration(text: str, reason: str) -> None:
    """One short line that says so."""
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_json(text)
    assert str(caught.value).startswith("config override")
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists) | st.text())
def test_nothing_else_is_ever_raised(value: object) -> None:
    """Whatever comes is parsed or refused."""
    for text in (str(value), json.dumps(value), json.dumps({"name": value})):
        try:
            assert isinstance(parse_json(text), config_pb.ModelConfig)
        except ConfigError:
            continue


def test_what_was_parsed_can_be_written_again() -> None:
    """ModelConfig answers it."""
    assert text_format.MessageToString(parse_json('{"name": "m"}')).strip() == 'name: "m"'
