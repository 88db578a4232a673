"""Bodies that are given the contents of files: each is read, or refused by an error of ours."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from google.protobuf import json_format

from headrace.engines.config_json import parse_json
from headrace.engines.labels import read_labels
from headrace.engines.model_config import check, complete, model_spec, unhonoured
from headrace.engines.pbtxt import parse_config
from headrace.engines.plan import read_plan_header
from headrace.engines.repository import read_model
from headrace.engines.warmup_config import samples_of
from headrace.errors import ConfigError
from headrace_client.bench.replay import read_intervals, read_replay
from headrace_client.bench.usage import UsageError
from headrace_proto.v1 import model_config_pb2 as config_pb
from helpers.model_repository import signature_of, write_model

_SIGNATURE = signature_of("x FP32[?,4] s BYTES[?,1]", "y FP32[?,4] l INT64[?]")
_NUM_SOURCES = 3


def config(data: bytes) -> None:
    """A config.pbtxt leads to a specification, or to an error with its reason."""
    try:
        parsed = parse_config(data.decode("utf-8", "replace"), path="config.pbtxt")
    except ConfigError:
        return
    _served(parsed)


def json_config(data: bytes) -> None:
    """So does a configuration that a client sends in JSON; what is taken can be written again."""
    try:
        parsed = parse_json(data.decode("utf-8", "replace"))
    except ConfigError:
        return
    # NaN and infinity have a name in JSON as well.
    assert parse_json(json_format.MessageToJson(parsed)) is not None
    _served(parsed)


def plan(data: bytes) -> None:
    """The header of a plan is read from any file, or the file is refused."""
    path = _file("model.plan", data)
    try:
        header = read_plan_header(path)
    except ConfigError:
        return
    assert 0 <= header.offset_bytes < header.offset_bytes + header.size_bytes == len(data)
    assert header.describe().isprintable()


def replay(data: bytes) -> None:
    """A file of arrivals is a schedule in order of time, or is refused; .npy by the first byte."""
    kind = data[0] if data else 0
    name = "a.npy" if kind & 1 else "a.txt"
    read = read_intervals if kind & 2 else read_replay
    path = _file(name, data[1:])
    try:
        schedule = read(path, _NUM_SOURCES)
    except UsageError:
        return
    batch = schedule.batch(0)
    assert batch is not None
    assert len(batch.times_s) == len(batch.sources) > 0
    assert (np.diff(batch.times_s) >= -1e-9 * batch.times_s[1:]).all()  # but for a rounding
    assert ((batch.sources >= 0) & (batch.sources < _NUM_SOURCES)).all()


@cache
def _folder() -> Path:
    """A folder of this process; libFuzzer ends without a word, so `run` takes it away as well."""
    made = tempfile.mkdtemp(prefix="headrace-fuzz-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


@cache
def _model() -> Path:
    extra = {"labels.txt": b"cat\ndog\n", "2/other.onnx": b"\x08\x08"}
    return write_model(_folder(), "m", extra=extra)


def _served(parsed: config_pb.ModelConfig) -> None:
    """What a load does with a configuration, as far as it needs no engine."""
    try:
        source = read_model(_model(), override=parsed)
        whole = complete(source.config, _SIGNATURE, auto_complete=True)
        if check(whole, _SIGNATURE, folder=source.folder):
            return
        again = complete(whole, _SIGNATURE, auto_complete=True)
        labels = read_labels(whole, source.folder)
    except ConfigError:
        return
    assert again == whole, "completing it again changes it"
    spec = model_spec(whole, _SIGNATURE, 1, labels=labels)
    assert spec.name == "m"
    samples_of(whole)
    unhonoured(source.config)
