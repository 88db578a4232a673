"""Whatever a configuration holds, what is said of it is short and on one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from headrace.engines.batching_config import QUEUE_PARAMETERS
from headrace.engines.model_config import check, complete, unhonoured
from headrace.engines.platforms import identify
from headrace.errors import ConfigError
from headrace_proto.v1 import model_config_pb2 as config_pb
from helpers.model_repository import signature_of

LONG = "x\n" * 5000
MAX_CHARS = 600  # of one reason: some quote several names
SIGNATURE = signature_of("x FP32[?,64]", "y FP32[?,10]")


def texts(message: Any, path: str = "") -> Iterator[str]:
    """Put the long text into every string below a message in turn; yield where it is."""
    for field in message.DESCRIPTOR.fields:
        name = f"{path}.{field.name}".lstrip(".")
        if field.type == FieldDescriptor.TYPE_STRING:
            if field.is_repeated:
                getattr(message, field.name).append(LONG)
            else:
                setattr(message, field.name, LONG)
            yield name
            message.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and path.count(".") < 3:
            yield from _below(message, field, name)


def _below(message: Any, field: Any, name: str) -> Iterator[str]:
    value = getattr(message, field.name)
    if field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        for key in (LONG, "k"):
            if field.message_type.fields_by_name["key"].type != FieldDescriptor.TYPE_STRING:
                break
            if inner.type == FieldDescriptor.TYPE_STRING:
                value[key] = LONG
                yield f"{name}[{key[:1]}]"
            elif inner.type == FieldDescriptor.TYPE_MESSAGE:
                value[key].SetInParent()
                yield from texts(value[key], f"{name}[{key[:1]}]")
            message.ClearField(field.name)
        return
    inner = value.add() if field.is_repeated else value
    inner.SetInParent()
    yield name
    yield from texts(inner, name)
    message.ClearField(field.name)


def told(config: config_pb.ModelConfig) -> list[str]:
    """Everything that is said of a configuration."""
    said = list(unhonoured(config))
    try:
        identify(config, (), path="p")
        config = complete(config, SIGNATURE, auto_complete=True, path="p")
        said += [str(fault) for fault in check(config, SIGNATURE, path="p")]
        said += [str(fault) for fault in check(config, None, path="p")]
    except ConfigError as error:
        said.append(str(error))
    return said


def test_no_text_of_a_configuration_is_repeated_in_full() -> None:
    """Each in turn, under a name and a platform that let the checks get to it."""
    config, num_told = config_pb.ModelConfig(), 0
    config.name, config.platform = "m", "onnxruntime_onnx"
    for where in texts(config):
        for text in told(config):
            num_told += 1
            assert len(text) <= MAX_CHARS, f"{where}: {len(text)} characters: {text[:200]}"
            assert "\n" not in text, where
        config.name, config.platform = "m", "onnxruntime_onnx"
    assert num_told > 50


@pytest.mark.parametrize("key", sorted(QUEUE_PARAMETERS))
@pytest.mark.parametrize("value", [LONG, "9" * 5000, "a=1," * 2000])
def test_nor_a_parameter(key: str, value: str) -> None:
    """A number may have five thousand digits, too."""
    config = config_pb.ModelConfig(name="m", platform="onnxruntime_onnx", max_batch_size=4)
    config.parameters[key].string_value = value
    for text in told(config):
        assert len(text) <= MAX_CHARS
        assert "\n" not in text
