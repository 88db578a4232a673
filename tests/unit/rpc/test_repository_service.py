"""The RPCs of model control: what they take, what they refuse, what they hand on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.catalog import ModelCatalog
from headrace.errors import RequestError, UnavailableError, UnsupportedError
from headrace.rpc.repository import RepositoryService
from headrace_proto.v1 import inference_pb2 as pb
from helpers.served import catalog_of, served


class Control:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def load(self, name: str, config: str | None, files: Mapping[str, bytes]) -> None:
        self.asked.append(("load", name, config, dict(files)))

    async def unload(self, name: str, *, with_dependents: bool) -> None:
        self.asked.append(("unload", name, with_dependents))

    async def names(self) -> list[str]:
        return ["a", "m", "z"]


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
def service(control: Control) -> RepositoryService:
    catalog = catalog_of(served("x FP32[?,1]", "y FP32[?,1]"))
    return RepositoryService(catalog, control, mode="explicit")


def load(service: RepositoryService, **parameters: pb.ModelRepositoryParameter) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="m")
    for name, value in parameters.items():
        request.parameters[name].CopyFrom(value)
    asyncio.run(service.load(request))


def index(service: RepositoryService, *, ready: bool = False) -> list[tuple[str, str, str]]:
    reply = asyncio.run(service.index(pb.RepositoryIndexRequest(ready=ready)))
    return [(model.name, model.version, model.state) for model in reply.models]


def text(value: str) -> pb.ModelRepositoryParameter:
    return pb.ModelRepositoryParameter(string_param=value)


def data(value: bytes) -> pb.ModelRepositoryParameter:
    return pb.ModelRepositoryParameter(bytes_param=value)


def test_what_a_client_sends_is_handed_on(service: RepositoryService, control: Control) -> None:
    """As it came: names are checked by who writes files."""
    load(service)
    load(service, config=text("{}"))
    load(service, config=text("{}"), **{"file:1/model.onnx": data(b"x"), "file:l": data(b"")})
    unload = pb.RepositoryModelUnloadRequest(model_name="n")
    asyncio.run(service.unload(unload))
    unload.parameters["unload_dependents"].bool_param = True
    asyncio.run(service.unload(unload))
    assert control.asked == [
        ("load", "m", None, {}),
        ("load", "m", "{}", {}),
        ("load", "m", "{}", {"file:1/model.onnx": b"x", "file:l": b""}),
        ("unload", "n", False),
        ("unload", "n", True),
    ]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"config": data(b"{}")}, "Unrecognized load parameter 'config'"),
        ({"file:1/x": text("x"), "config": text("{}")}, "Unrecognized load parameter 'file:1/x'"),
        ({"File:1/x": data(b"x"), "config": text("{}")}, "Unrecognized load parameter 'File:1/x'"),
        ({"model_path": text("/etc")}, "Unrecognized load parameter 'model_path'"),
        ({"config": pb.ModelRepositoryParameter()}, "Unrecognized load parameter 'config'"),
        ({"x\n\x1b[2J": text("x")}, r"Unrecognized load parameter 'x\\n\\x1b\[2J'"),
        ({"file:1/model.onnx": data(b"x")}, "files come without 'config'"),
    ],
)
def test_parameters_that_are_none(
    service: RepositoryService,
    control: Control,
    parameters: dict[str, pb.ModelRepositoryParameter],
    reason: str,
) -> None:
    """Nothing is loaded as if they were not there."""
    with pytest.raises(RequestError, match=reason):
        load(service, **parameters)
    assert control.asked == []


def test_an_unload_with_other_parameters(service: RepositoryService, control: Control) -> None:
    """Is refused as well."""
    request = pb.RepositoryModelUnloadRequest(model_name="m")
    request.parameters["unload_dependents"].string_param = "yes"
    with pytest.raises(RequestError, match="Unrecognized unload parameter"):
        asyncio.run(service.unload(request))
    assert control.asked == []


@pytest.mark.parametrize("mode", ["explicit", "none"])
def test_a_repository_cannot_be_named(mode: str, control: Control) -> None:
    """As in Triton, whose answer is this one also where clients may load nothing."""
    service = RepositoryService(catalog_of(), control if mode == "explicit" else None, mode=mode)
    for work in (
        service.load(pb.RepositoryModelLoadRequest(repository_name="r", model_name="m")),
        service.unload(pb.RepositoryModelUnloadRequest(repository_name="r", model_name="m")),
        service.index(pb.RepositoryIndexRequest(repository_name="r")),
    ):
        with pytest.raises(UnsupportedError, match="'repository_name' specification"):
            asyncio.run(work)
    assert control.asked == []


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_other_modes_let_clients_change_nothing(mode: str) -> None:
    """The text says which mode would."""
    service = RepositoryService(catalog_of(), None, mode=mode)
    for work in (
        service.load(pb.RepositoryModelLoadRequest(model_name="m")),
        service.unload(pb.RepositoryModelUnloadRequest(model_name="m")),
    ):
        with pytest.raises(UnavailableError, match="load / unload is not allowed") as caught:
            asyncio.run(work)
        assert mode in str(caught.value)


def test_the_index_names_what_could_be_loaded(service: RepositoryService) -> None:
    """By its name alone, after what is known; not where only the ready ones are wanted."""
    assert index(service) == [("m", "1", "READY"), ("a", "", ""), ("z", "", "")]
    assert index(service, ready=True) == [("m", "1", "READY")]


def test_the_index_tells_of_files_whose_names_are_no_text() -> None:
    """A folder's name need not be UTF-8; a message's strings must be."""
    catalog = ModelCatalog()
    catalog.add_failed("b\udcffd", 1, "/models/\udcff/model.onnx: is broken")
    service = RepositoryService(catalog, None, mode="none")
    reply = asyncio.run(service.index(pb.RepositoryIndexRequest()))
    (entry,) = pb.RepositoryIndexResponse.FromString(reply.SerializeToString()).models
    assert (entry.state, "is broken" in entry.reason) == ("UNAVAILABLE", True)
