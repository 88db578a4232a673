"""Reads a model configuration in JSON, as clients send it with a load in place of config.pbtxt."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from google.protobuf import json_format

from headrace.engines.pbtxt import MAX_CONFIG_BYTES
from headrace.errors import ConfigError
from headrace.escape import printable
from headrace_proto.v1 import model_config_pb2 as config_pb

OVERRIDE: Final = Path("config override")
"""What errors call it, in place of a file."""

MAX_DEPTH: Final = 32
"""Of nested messages: a configuration has eight at most."""

MAX_REASON_CHARS: Final = 300  # protobuf repeats what came, which may be long


def parse_json(text: str) -> config_pb.ModelConfig:
    """Parse a configuration; unknown fields are refused.

    Args:
        text: A JSON object, its names as in config.pbtxt or in camel case.

    Raises:
        ConfigError: It is too large or no configuration.
    """
    path = str(OVERRIDE)
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigError(f"is larger than {MAX_CONFIG_BYTES} characters", path=path)
    if not text.lstrip().startswith("{"):
        raise ConfigError("is no model configuration in JSON: not an object", path=path)
    try:
        return json_format.Parse(text, config_pb.ModelConfig(), max_recursion_depth=MAX_DEPTH)
    except json_format.ParseError as error:
        reason = printable(str(error).removeprefix("Failed to parse "), MAX_REASON_CHARS)
        raise ConfigError(f"is no model configuration in JSON: {reason}", path=path) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", path=path) from None
