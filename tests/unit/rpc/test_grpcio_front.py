"""The grpcio front door in this process: bugs tell callers nothing, watchers are told of health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from headrace.catalog import ModelCatalog
from headrace.errors import ConfigError
from headrace.rpc.admin import NOT_OFFERED
from headrace.rpc.drive import LoopDriver
from headrace.rpc.grpcio_front import GrpcioFront, GrpcioOptions
from headrace.rpc.health import SERVICE as HEALTH
from headrace.rpc.health import HealthService
from headrace.rpc.infer import InferService
from headrace.rpc.inflate import Inflater
from headrace.rpc.prepare import Limits
from headrace.rpc.stream import StreamBounds
from headrace.rpc.stream_service import StreamService
from headrace.scheduling.request import Request
from headrace.slots.wait import Wait
from headrace_proto.service import METHODS
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import MAX_FIELDS
from helpers.core_rig import Rig
from helpers.served import catalog_of, served
from helpers.settings import answers_of

Status = health_pb2.HealthCheckResponse


class Phases:
    """What the life of a server says of it."""

    is_welcome = True
    is_stopping = False


class Door:
    """A front door on a Unix socket, and a channel to it."""

    channel: grpc.aio.Channel

    def __init__(self, folder: Path, catalog: Any) -> None:
        self.path = f"unix:{folder}/door.sock"
        self.phases = Phases()
        self.rig = Rig()
        link: Any = Link(self.rig)
        infer = InferService(
            catalog, link, Limits(), clock=self.rig.clock, max_request_bytes=1 << 20
        )
        driver = LoopDriver(
            link, asyncio.get_running_loop(), Wait.NOTIFY, nap_s=0, clock=self.rig.clock
        )
        inflater = self.inflater = Inflater(1 << 20)
        self.front = GrpcioFront(
            GrpcioOptions(self.path),
            link,
            driver,
            infer=infer,
            answers=answers_of(catalog, is_stopping=lambda: self.phases.is_stopping),
            health=HealthService(
                catalog,
                is_welcome=lambda: self.phases.is_welcome,
                is_stopping=lambda: self.phases.is_stopping,
            ),
            streams=StreamService(
                infer,
                link,
                driver,
                StreamBounds(),
                inflater=inflater,
                clock=self.rig.clock,
                max_held_bytes=1 << 20,
            ),
            inflater=inflater,
            clock=self.rig.clock,
        )

    async def code(self, name: str, **fields: Any) -> tuple[grpc.StatusCode, str]:
        """Call an RPC of the inference service; how it ended."""
        method = METHODS[name]
        call = self.channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )(method.request(**fields), timeout=10)
        return await call.code(), await call.details()

    def watch(self, service: str = "") -> Any:
        """Watch a service's health."""
        method = self.channel.unary_stream(
            f"/{HEALTH}/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        return method(health_pb2.HealthCheckRequest(service=service), timeout=10)


class Link:
    """The part of a link that a front without requests uses."""

    is_idle = is_at_rest = True
    is_polling = False

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def step(self, now: float) -> bool:
        return self.rig.scheduler.step(now)

    def cancel(self, request: Request) -> None:
        self.rig.scheduler.cancel(request)


@asynccontextmanager
async def opened(folder: Path, catalog: Any) -> AsyncIterator[Door]:
    door = Door(folder, catalog)
    await door.front.start()
    async with grpc.aio.insecure_channel(door.path) as door.channel:
        yield door
    await door.front.stop(0)
    door.inflater.close()
    door.rig.close()


def run(body: Callable[[Door], Any], folder: Path, catalog: Any) -> None:
    """Run a test against a door, in a loop of its own."""

    async def main() -> None:
        async with opened(folder, catalog) as door:
            await body(door)

    asyncio.run(main())


class Broken(ModelCatalog):
    """A catalog with a bug in everything."""

    def find(self, name: str, version: str) -> Any:
        raise KeyError("secret")

    index = find  # type: ignore[assignment]

    @property
    def is_ready(self) -> bool:
        raise KeyError("secret")


@pytest.mark.parametrize(
    "name", ["ServerReady", "ModelReady", "ModelMetadata", "ModelConfig", "ModelInfer"]
)
def test_a_bug_tells_the_caller_nothing(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """INTERNAL without a class or a text of it; the log has the traceback."""

    async def body(door: Door) -> None:
        code, text = await door.code(name)
        assert code is grpc.StatusCode.INTERNAL
        assert "secret" not in text
        assert "KeyError" not in text

    run(body, tmp_path, Broken())
    assert "KeyError: 'secret'" in caplog.text


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_what_is_not_offered_says_so(name: str, tmp_path: Path) -> None:
    """Every RPC of the protocol is offered or UNIMPLEMENTED with a text of ours."""

    async def body(door: Door) -> None:
        assert await door.code(name) == (grpc.StatusCode.UNIMPLEMENTED, NOT_OFFERED[name])

    run(body, tmp_path, catalog_of())


def test_every_method_of_the_protocol_is_one_or_the_other() -> None:
    """None is forgotten, none is both."""
    offered = [*answers_of(catalog_of())]
    assert sorted([*offered, *NOT_OFFERED, "ModelInfer", "ModelStreamInfer"]) == sorted(METHODS)
    assert len(METHODS) == 20


def test_a_watcher_is_told_of_each_change_and_let_go_of_in_the_end(tmp_path: Path) -> None:
    """While the server stops an open stream must not hold it up."""

    async def body(door: Door) -> None:
        whole, model = door.watch(), door.watch("m")
        assert [(await call.read()).status for call in (whole, model)] == [Status.SERVING] * 2
        door.phases.is_welcome = False  # the lame duck
        assert (await model.read()).status == Status.NOT_SERVING
        door.phases.is_welcome = True
        assert (await model.read()).status == Status.SERVING
        door.phases.is_welcome, door.phases.is_stopping = False, True
        for call in (whole, model):
            while (message := await call.read()) is not grpc.aio.EOF:
                last = message.status
            assert last == Status.NOT_SERVING
            assert await call.code() is grpc.StatusCode.OK

    run(body, tmp_path, catalog_of(served("x FP32[?,1]", "y FP32[?,1]")))


def test_a_watcher_of_nothing_waits_for_it(tmp_path: Path) -> None:
    """An unknown service is told as such, and told of when it comes, as the protocol wants."""
    catalog = catalog_of()

    async def body(door: Door) -> None:
        call = door.watch("m")
        assert (await call.read()).status == Status.SERVICE_UNKNOWN
        catalog.add(served("x FP32[?,1]", "y FP32[?,1]"))
        assert (await call.read()).status == Status.SERVING
        call.cancel()

    run(body, tmp_path, catalog)


def test_an_address_that_cannot_be_bound(tmp_path: Path) -> None:
    """The error names the address and the flag."""

    async def main() -> None:
        door = Door(tmp_path / "missing", catalog_of())
        with pytest.raises(ConfigError, match=r"--grpc-port: cannot listen on unix:.*missing"):
            await door.front.start()
        door.rig.close()

    asyncio.run(main())


@pytest.mark.parametrize("excess", [0, 1])
def test_requests_of_very_many_fields(tmp_path: Path, excess: int) -> None:
    """They are refused before they are parsed; what is wrong with others, their service says."""

    async def body(door: Door) -> None:
        settings = {
            f"{number:x}": pb.LogSettingsRequest.SettingValue()
            for number in range(MAX_FIELDS + excess)
        }
        code, details = await door.code("LogSettings", settings=settings)
        text = "the LogSettingsRequest has more than 65536 fields" if excess else "is not known"
        assert (code, text in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)

    run(body, tmp_path, catalog_of())
