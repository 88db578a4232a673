"""Shared memory: regions of the system and of CUDA, and requests whose tensors lie in them."""

from __future__ import annotations

import base64
import itertools
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import grpc
from outcome import CALL_S, Cases, Facts, Server, numbers, told
from tritonclient.grpc import service_pb2 as pb

cases = Cases()
_KEYS = (f"/headrace-compared-{number}" for number in itertools.count())
_BYTES = 8192
_NO_HANDLE = base64.b64encode(bytes(64))


class Region(NamedTuple):
    """Shared memory of this process and the name that the system knows it by."""

    memory: mmap.mmap
    key: str


@contextmanager
def _memory(key: str, size: int = _BYTES) -> Iterator[mmap.mmap]:
    """A region of this process; POSIX's shared memory is a file there on Linux."""
    path = Path("/dev/shm") / key[1:]
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
    try:
        os.ftruncate(descriptor, size)
        yield mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
        path.unlink()


def _register(server: Server, name: str, key: str, **fields: int) -> None:
    request = pb.SystemSharedMemoryRegisterRequest(
        name=name, key=key, **{"byte_size": _BYTES, **fields}
    )
    server.stub.SystemSharedMemoryRegister(request, timeout=CALL_S)


def _unregister(server: Server, name: str = "") -> None:
    request = pb.SystemSharedMemoryUnregisterRequest(name=name)
    server.stub.SystemSharedMemoryUnregister(request, timeout=CALL_S)


def _status(server: Server, name: str = "") -> Facts:
    request = pb.SystemSharedMemoryStatusRequest(name=name)
    answer = server.stub.SystemSharedMemoryStatus(request, timeout=CALL_S)
    regions = sorted(answer.regions.items())
    return {"regions": [[key, each.name, each.offset, each.byte_size] for key, each in regions]}


@contextmanager
def _registered(server: Server, **fields: int) -> Iterator[Region]:
    """A region `r` that the server knows, and that is gone behind it; its key is a new one."""
    key = next(_KEYS)
    with _memory(key) as memory:
        _register(server, "r", key, **fields)
        try:
            yield Region(memory, key)
        finally:
            with suppress(grpc.RpcError):
                _unregister(server)


def _with_region(name: str, **fields: int) -> object:
    """Make a case of what is done while `r` is registered."""

    def add(act: object) -> object:
        def case(server: Server) -> Facts:
            with _registered(server, **fields) as region:
                return act(server, region)

        cases(f"system memory: {name}")(case)
        return act

    return add


cases("system memory: status")(_status)
cases("system memory: status of what is not there")(lambda server: _status(server, "nothing"))


@cases("system memory: unregister all")
def _unregister_all(server: Server) -> Facts:
    _unregister(server)
    return {}


@cases("system memory: unregister what is not there")
def _unregister_nothing(server: Server) -> Facts:
    _unregister(server, "nothing")
    return {}


@_with_region("register")
def _shown(server: Server, region: Region) -> Facts:
    shown = _status(server, "r")
    _unregister(server, "r")
    return {"shown": shown, "after": _status(server)}


@_with_region("register twice")
def _twice(server: Server, region: Region) -> Facts:
    _register(server, "r", region.key)
    return {}


@_with_region("register its key by another name")
def _other_name(server: Server, region: Region) -> Facts:
    _register(server, "s", region.key)
    return _status(server)


@_with_region("register with an offset of a page", offset=4096, byte_size=4096)
def _page(server: Server, region: Region) -> Facts:
    return _status(server)


@_with_region("register with another offset", offset=1024, byte_size=1024)
def _offset(server: Server, region: Region) -> Facts:
    return _status(server)


for _what, _fields in {
    "more bytes than there are": {"byte_size": 2 * _BYTES},
    "an offset beyond the end": {"offset": 2 * _BYTES},
    "offset and size that wrap": {"offset": 2**64 - 1024, "byte_size": 2048},
    "no bytes": {"byte_size": 0},
}.items():

    @cases(f"system memory: register {_what}")
    def _bad_range(server: Server, fields: dict[str, int] = _fields) -> Facts:
        with _registered(server, **fields):
            return _status(server)


for _what, _key in {
    "a key that is not there": "/headrace-nothing",
    "a key that is a path": "/../etc/passwd",
    "a key of Triton's own": "/triton_python_backend_shm_region_1",
    "no key": "",
}.items():

    @cases(f"system memory: register {_what}")
    def _bad_key(server: Server, key: str = _key) -> Facts:
        _register(server, "r", key)
        return _status(server)


def _request(name: str = "r", size: int = 24, offset: int = 0) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="whole")
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[2, 3])
    _place(tensor, name, size, offset)
    return request


def _place(tensor: object, name: str, size: int, offset: int) -> None:
    tensor.parameters["shared_memory_region"].string_param = name
    tensor.parameters["shared_memory_byte_size"].int64_param = size
    if offset:
        tensor.parameters["shared_memory_offset"].int64_param = offset


@_with_region("infer, both ways")
def _both_ways(server: Server, region: Region) -> Facts:
    region.memory[:24] = numbers(2, 3).tobytes()
    request = _request()
    _place(request.outputs.add(name="y"), "r", 24, 1024)
    answer = server.infer(request)
    placed = sorted(answer.outputs[0].parameters)
    return {
        **told(answer),
        "placed": placed,
        "same": region.memory[1024:1048] == region.memory[:24],
    }


@_with_region("infer, output alone, with room to spare")
def _output(server: Server, region: Region) -> Facts:
    request = pb.ModelInferRequest(model_name="whole")
    request.inputs.add(name="x", datatype="FP32", shape=[2, 3])
    request.raw_input_contents.append(numbers(2, 3).tobytes())
    _place(request.outputs.add(name="y"), "r", 100, 0)
    answer = server.infer(request)
    size = answer.outputs[0].parameters["shared_memory_byte_size"].int64_param
    return {**told(answer), "size": size, "same": region.memory[:24] == numbers(2, 3).tobytes()}


for _what, _arguments in {
    "of a region that is not there": {"name": "nothing"},
    "a byte too few": {"size": 23},
    "a byte too many": {"size": 25},
    "beyond the end": {"offset": _BYTES - 8},
    "at an offset below 0": {"offset": -8},
    "of a size below 0": {"size": -24},
    "of a size that wraps": {"size": 2**63 - 1, "offset": 2**63 - 1},
}.items():

    @_with_region(f"infer, input {_what}")
    def _bad_input(server: Server, region: Region, arguments: object = _arguments) -> Facts:
        return told(server.infer(_request(**arguments)))


@_with_region("infer, output that does not fit")
def _small(server: Server, region: Region) -> Facts:
    request = _request()
    _place(request.outputs.add(name="y"), "r", 8, 1024)
    return told(server.infer(request))


@_with_region("infer with raw contents beside it")
def _beside(server: Server, region: Region) -> Facts:
    request = _request()
    request.raw_input_contents.append(numbers(2, 3).tobytes())
    return told(server.infer(request))


@_with_region("classes into it")
def _classes(server: Server, region: Region) -> Facts:
    request = _request()
    output = request.outputs.add(name="y")
    output.parameters["classification"].int64_param = 2
    _place(output, "r", 1024, 1024)
    return told(server.infer(request))


@cases("CUDA memory: status")
def _cuda_status(server: Server) -> Facts:
    answer = server.stub.CudaSharedMemoryStatus(pb.CudaSharedMemoryStatusRequest(), timeout=CALL_S)
    return {"regions": sorted(answer.regions)}


@cases("CUDA memory: status of what is not there")
def _cuda_status_of(server: Server) -> Facts:
    request = pb.CudaSharedMemoryStatusRequest(name="nothing")
    return {"regions": sorted(server.stub.CudaSharedMemoryStatus(request, timeout=CALL_S).regions)}


@cases("CUDA memory: register")
def _cuda_register(server: Server) -> Facts:
    server.client.register_cuda_shared_memory("c", _NO_HANDLE, 0, 64, client_timeout=CALL_S)
    return {}


@cases("CUDA memory: unregister all")
def _cuda_unregister(server: Server) -> Facts:
    server.client.unregister_cuda_shared_memory(client_timeout=CALL_S)
    return {}
