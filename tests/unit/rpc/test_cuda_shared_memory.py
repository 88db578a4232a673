"""CUDA's shared memory by Triton's RPCs, down to the copies of the virtual device."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from headrace.client_shm import ClientShm
from headrace.config import ServerConfig
from headrace.device.base import Device
from headrace.device.host import HostDevice
from headrace.device.sim import SimDevice
from headrace.device.sim_shared import SimForeign
from headrace.errors import (
    ExistsError,
    NotFoundError,
    RequestError,
    TooLargeError,
    UnsupportedError,
)
from headrace.link.local import LocalLink
from headrace.metrics import Metrics
from headrace.regions.part import RegionPart
from headrace.rpc.infer import InferService
from headrace.rpc.prepare import Limits
from headrace.rpc.status import Status
from headrace.rpc.wishes import Metadata
from headrace_proto.v1 import inference_pb2 as pb
from helpers.core_rig import Rig
from helpers.ensemble_rig import EnsembleRig, ensemble_text, step_text
from helpers.messages import infer, tensor
from helpers.served import catalog_of, served
from helpers.shm_client import part

Code = grpc.StatusCode
SIZE, MAX_BYTES, MAX_REGIONS = 3000, 10_000, 4
HUGE = (2**63, 2**64 - 1)


class Told:
    """A call that keeps how it was answered."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.statuses: list[Status] = []

    def metadata(self) -> Metadata:
        return ()

    def respond(self, reply: bytes) -> None:
        self.replies.append(pb.ModelInferResponse.FromString(reply))

    def fail(self, status: Status) -> None:
        self.statuses.append(status)


def shm_on(device: Device, **more: Any) -> ClientShm:
    """What a server with the flag offers."""
    config = ServerConfig(
        allow_client_shm=True,
        client_shm_max_bytes=MAX_BYTES,
        client_shm_max_regions=MAX_REGIONS,
        **more,
    )
    return ClientShm(config, Metrics(), device, clock=lambda: 0.0)


class Front:
    """The RPCs of shared memory and of inference, over models of one input `x` and one output `y`.

    `m` adds 1 to every byte; `text` takes and gives strings, and never runs.
    """

    def __init__(self) -> None:
        self.rig = Rig(num_slots=1)
        self.device = self.rig.device
        self.shm = shm_on(self.device)
        model = served("x UINT8[?,?]", "y UINT8[?,?]", name="m", pool=self.rig.pool)
        text = served("x BYTES[?,1]", "y BYTES[?,1]", name="text")
        self.rig.scheduler.add_line(model.line)
        self.service = InferService(
            catalog_of(model, text),
            LocalLink(self.rig.scheduler),
            Limits(),
            clock=self.rig.clock,
            max_request_bytes=1 << 20,
            regions=self.shm.table,
        )

    def ask(self, name: str, /, **fields: Any) -> Any:
        """Call an RPC of shared memory; raises what refuses it."""
        answer = self.shm.methods[name](getattr(pb, f"{name}Request")(**fields))
        return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer

    def register(self, name: str, foreign: SimForeign, size: int = SIZE, device: int = 0) -> None:
        fields = {"raw_handle": foreign.handle, "device_id": device, "byte_size": size}
        self.ask("CudaSharedMemoryRegister", name=name, **fields)

    def infer(
        self,
        source: dict[str, str | int],
        wanted: dict[str, str | int] | None,
        size: int,
        model: str = "m",
    ) -> Told:
        """Ask a model for one row, and let everything end."""
        call = Told()
        datatype, shape = ("UINT8", (1, size)) if model == "m" else ("BYTES", (1, 1))
        outputs: dict[str, Any] = {"outputs": ["y"], "output_parameters": wanted}
        message = infer(
            model, [tensor("x", datatype, shape, parameters=source)], **(outputs if wanted else {})
        )
        self.service.accept(message, call, received_at=self.rig.clock(), deadline=None)
        self.rig.run()
        assert len(call.replies) + len(call.statuses) == 1
        return call

    @property
    def table(self) -> Any:
        return self.shm.table

    def names(self) -> list[str]:
        return sorted(self.ask("CudaSharedMemoryStatus").regions)


@pytest.fixture
def front() -> Iterator[Front]:
    made = Front()
    yield made
    assert made.rig.blocks.num_leased == 0
    for region in (*made.table.listed(""), *made.table.listed("", on_device=True)):
        assert region.num_uses == 0
    made.shm.close()
    assert made.table.num_regions == 0
    made.rig.close()


def test_tensors_go_from_device_memory_into_device_memory(front: Front) -> None:
    """Small and large, again and again; the reply says where the output is."""
    source, target = front.device.share_memory(SIZE), front.device.share_memory(SIZE)
    front.register("in", source)
    front.register("out", target)
    rng, num_bytes = np.random.default_rng(1), 0
    for size in (4, SIZE - 100, 1, SIZE - 100):
        source.array[:] = rng.integers(0, 256, SIZE)
        call = front.infer(part("in", size, 100), part("out", SIZE - 100, 100), size)
        assert np.array_equal(target.array[100 : 100 + size], source.array[100 : 100 + size] + 1)
        (output,) = call.replies[0].outputs
        assert output.parameters["shared_memory_region"].string_param == "out"
        assert output.parameters["shared_memory_byte_size"].int64_param == size
        assert output.parameters["shared_memory_offset"].int64_param == 100
        assert list(call.replies[0].raw_output_contents) == [b""]
        num_bytes += 2 * size
    assert front.table.num_direct_bytes == num_bytes
    assert front.table.num_read_bytes == front.table.num_written_bytes == 0


def test_regions_are_listed_with_their_device(front: Front) -> None:
    """By the RPC of their kind alone."""
    foreign = front.device.share_memory(SIZE)
    front.register("a", foreign)
    front.register("b", foreign, 7)
    regions = front.ask("CudaSharedMemoryStatus").regions
    seen = {name: (r.name, r.device_id, r.byte_size) for name, r in regions.items()}
    assert seen == {"a": ("a", 0, SIZE), "b": ("b", 0, 7)}
    assert list(front.ask("CudaSharedMemoryStatus", name="b").regions) == ["b"]
    assert len(front.ask("SystemSharedMemoryStatus").regions) == 0
    with pytest.raises(NotFoundError, match="'a' is not registered"):
        front.ask("SystemSharedMemoryStatus", name="a")
    with pytest.raises(NotFoundError, match="CUDA shared memory region 'no' is not registered"):
        front.ask("CudaSharedMemoryStatus", name="no")


def test_unregistering_is_of_one_kind(front: Front) -> None:
    """One of them, or all; what is not there is no error."""
    foreign = front.device.share_memory(SIZE)
    front.register("a", foreign)
    front.register("b", foreign)
    for name in ("", "a"):
        front.ask("SystemSharedMemoryUnregister", name=name)
    front.ask("CudaSharedMemoryUnregister", name="no")
    assert front.names() == ["a", "b"]
    front.ask("CudaSharedMemoryUnregister", name="a")
    assert front.names() == ["b"]
    front.register("a", foreign)
    front.ask("CudaSharedMemoryUnregister")
    assert front.names() == []


def test_memory_is_closed_when_unregistering_is_answered(front: Front) -> None:
    """Of what no request uses: whoever owns it may free it then."""
    foreign = front.device.share_memory(SIZE)
    front.register("a", foreign)
    front.register("b", foreign)
    before = front.device.leaks()
    front.ask("CudaSharedMemoryUnregister", name="a")
    assert len(before) - len(front.device.leaks()) == 1
    used = front.table.hold([RegionPart("b", 0, 1)], 0)
    front.ask("CudaSharedMemoryUnregister")
    assert len(before) - len(front.device.leaks()) == 1
    front.table.release(used)
    front.ask("CudaSharedMemoryUnregister")
    assert len(before) - len(front.device.leaks()) == 2


@pytest.mark.parametrize("device", [-1, 1, 7, 2**63 - 1, -(2**63)])
def test_another_device_is_refused(front: Front, device: int) -> None:
    """The text says which one is served; nothing is opened."""
    before = front.device.leaks()
    with pytest.raises(RequestError, match=f"of device {device}; this server serves GPU 0"):
        front.register("r", front.device.share_memory(SIZE), device=device)
    assert (front.names(), front.device.leaks()) == ([], before)


@pytest.mark.parametrize("size", [0, 63, 64, 65, 1 << 20])
def test_what_is_no_handle(front: Front, size: int, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong request, in whose text no byte of it is."""
    with caplog.at_level(logging.DEBUG), pytest.raises(RequestError) as caught:
        front.ask("CudaSharedMemoryRegister", name="r", raw_handle=b"h" * size, byte_size=8)
    assert not isinstance(caught.value, UnsupportedError)
    assert len(str(caught.value)) < 400
    assert "hhh" not in str(caught.value) + caplog.text
    assert front.names() == []


@pytest.mark.parametrize(
    ("size", "kind"),
    [(0, RequestError), (SIZE + 1, RequestError), *((size, TooLargeError) for size in HUGE)],
)
def test_sizes_that_are_not_there(front: Front, size: int, kind: type[Exception]) -> None:
    """No sum wraps."""
    before = front.device.leaks()
    with pytest.raises(kind, match="region 'r'"):
        front.register("r", front.device.share_memory(SIZE), size)
    assert (front.names(), front.device.leaks()) == ([], before)


@pytest.mark.parametrize(
    ("offset", "size"), [(1, SIZE), (2**63 - 1, SIZE), (-1, SIZE), (-SIZE, SIZE), (0, -SIZE)]
)
def test_tensors_that_lie_elsewhere(front: Front, offset: int, size: int) -> None:
    """Behind the region's end, before its begin: refused each way, and nothing is written."""
    source, target = front.device.share_memory(SIZE + 500), front.device.share_memory(SIZE + 500)
    front.register("in", source)
    front.register("out", target)
    before = target.array.copy()
    wrong, right = part("in", size, offset), part("in", SIZE)
    for come, wanted in ((wrong, part("out", SIZE)), (right, part("out", size, offset))):
        call = front.infer(come, wanted, SIZE)
        assert [status.code for status in call.statuses] == [Code.INVALID_ARGUMENT]
    assert np.array_equal(target.array, before)
    assert front.infer(right, part("out", SIZE), SIZE).replies


def test_names_and_quota_are_those_of_all_regions(front: Front) -> None:
    """A name is taken once; a region more than may be is refused."""
    foreign = front.device.share_memory(SIZE)
    front.register("r", foreign, 8)
    with pytest.raises(ExistsError, match="'r' is registered already"):
        front.register("r", foreign, 8)
    for index in range(MAX_REGIONS - 1):
        front.register(str(index), foreign, 8)
    with pytest.raises(TooLargeError, match=f"{MAX_REGIONS} of {MAX_REGIONS} regions"):
        front.register("more", foreign, 8)


def test_strings_do_not_lie_in_device_memory(front: Front) -> None:
    """Their values are looked at, and their sizes not known: refused each way, with what to do."""
    foreign = front.device.share_memory(SIZE)
    front.register("r", foreign)
    (status,) = front.infer(part("r", 8), None, 1, "text").statuses
    assert (status.code, "in the message" in status.text) == (Code.INVALID_ARGUMENT, True)
    string = b"\4\0\0\0abcd"
    call, request = Told(), pb.ModelInferRequest(model_name="text", raw_input_contents=[string])
    request.inputs.add(name="x", datatype="BYTES", shape=[1, 1])
    output = request.outputs.add(name="y")
    output.parameters["shared_memory_region"].string_param = "r"
    output.parameters["shared_memory_byte_size"].int64_param = 100
    front.service.accept(request.SerializeToString(), call, received_at=0.0, deadline=None)
    (status,) = call.statuses
    assert status.code is Code.INVALID_ARGUMENT
    assert "which lies in a GPU's memory" in status.text


@pytest.mark.parametrize("way", ["in", "out"])
def test_ensembles_take_and_give_what_the_host_has(way: str) -> None:
    """Refused at once, each way, with what to do; no step begins, and nothing is held."""
    rig = EnsembleRig()
    shm = shm_on(rig.device)
    rig.add(rig.model("a"))
    rig.ensemble(ensemble_text(["in"], ["out"], [step_text("a", {"x0": "in"}, {"y0": "out"})]))
    service = InferService(
        rig.catalog, rig.link, Limits(), clock=rig.clock, max_request_bytes=999, regions=shm.table
    )
    table = shm.table
    assert table is not None
    table.register_shared("r", rig.device.share_memory(SIZE).handle, SIZE, 0)
    place = part("r", 4)
    good = infer("e", [tensor("in", "UINT8", (1, 4))], [bytes(4)])
    wrong = {
        "in": infer("e", [tensor("in", "UINT8", (1, 4), parameters=place)]),
        "out": good + infer("", [], outputs=["out"], output_parameters=place),
    }[way]

    def ask(message: bytes) -> Told:
        call = Told()
        service.accept(message, call, received_at=rig.clock(), deadline=None)
        rig.run()
        return call

    for _ in range(3):
        call = ask(wrong)
        (status,) = call.statuses
        assert (status.code, call.replies) == (Code.INVALID_ARGUMENT, [])
        assert "in the message, or in system shared memory" in status.text
    assert len(ask(good).replies) == 1
    assert [region.num_uses for region in table.listed("", on_device=True)] == [0]
    shm.close()
    rig.close()


def test_what_is_logged_of_a_region(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    """Its name and its size, and nothing that would open it."""
    foreign = front.device.share_memory(SIZE)
    with caplog.at_level(logging.DEBUG):
        front.register("r\n", foreign, 8)
        front.infer(part("r\n", 8), None, 8)
    assert r"CUDA shared memory region 'r\n' has 8 bytes" in caplog.text
    assert foreign.handle.hex() not in caplog.text
    assert repr(foreign.handle)[2:20] not in caplog.text


def test_what_a_server_says_that_it_can() -> None:
    """On a device with memory that others can share; on the host it refuses, and lists nothing."""
    device = SimDevice()
    assert shm_on(device).extensions == ("system_shared_memory", "cuda_shared_memory")
    host = shm_on(HostDevice())
    assert host.extensions == ("system_shared_memory",)
    register = pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=bytes(64), device_id=3)
    with pytest.raises(UnsupportedError, match="takes system shared memory alone"):
        asyncio.run(host.methods["CudaSharedMemoryRegister"](register))
    status = host.methods["CudaSharedMemoryStatus"]
    assert not status(pb.CudaSharedMemoryStatusRequest()).regions
    with pytest.raises(NotFoundError):
        status(pb.CudaSharedMemoryStatusRequest(name="r"))
    unregister = host.methods["CudaSharedMemoryUnregister"]
    asyncio.run(unregister(pb.CudaSharedMemoryUnregisterRequest()))


def test_a_device_has_the_number_that_cuda_gives_it() -> None:
    """Which is what clients have to say."""
    shm = shm_on(SimDevice(3))
    foreign = SimDevice(3).share_memory(8)
    fields: dict[str, Any] = {"name": "r", "raw_handle": foreign.handle, "byte_size": 8}
    register = shm.methods["CudaSharedMemoryRegister"]
    with pytest.raises(RequestError, match="this server serves GPU 3"):
        asyncio.run(register(pb.CudaSharedMemoryRegisterRequest(**fields)))
    with pytest.raises(RequestError, match="no living process"):
        asyncio.run(register(pb.CudaSharedMemoryRegisterRequest(**fields, device_id=3)))
