"""What the service tests cannot bring about: a server that stops, a catalog that changes."""

from __future__ import annotations

import pytest

from headrace.errors import UnavailableError
from headrace.rpc.admin import AdminService
from headrace_proto.v1 import inference_pb2 as pb
from helpers.served import catalog_of, served


def test_a_stopping_server_says_so() -> None:
    """As Triton does: live and ready are errors then, and all else is answered."""
    catalog = catalog_of(served("x FP32[?,1]", "y FP32[?,1]"))
    admin = AdminService(catalog, server_id="s", is_stopping=lambda: True)
    with pytest.raises(UnavailableError, match="Server exiting"):
        admin.server_live(pb.ServerLiveRequest())
    with pytest.raises(UnavailableError, match="Server exiting"):
        admin.server_ready(pb.ServerReadyRequest())
    assert admin.model_metadata(pb.ModelMetadataRequest(name="m")).name == "m"


def test_readiness_is_the_catalog_s() -> None:
    """Of the moment."""
    catalog = catalog_of(served("x FP32[?,1]", "y FP32[?,1]"))
    admin = AdminService(catalog, server_id="s", is_stopping=lambda: False)
    assert admin.server_ready(pb.ServerReadyRequest()).ready
    catalog.watch(lambda: False)
    assert not admin.server_ready(pb.ServerReadyRequest()).ready
    assert admin.server_live(pb.ServerLiveRequest()).live


def test_metadata_name_the_versions_or_the_one_that_is_asked_for() -> None:
    """As Triton does."""
    one, two = (served("x FP32[?,1]", "y FP32[?,1]", version=number) for number in (1, 2))
    admin = AdminService(catalog_of(one, two), server_id="s", is_stopping=lambda: False)
    assert admin.model_metadata(pb.ModelMetadataRequest(name="m")).versions == ["1", "2"]
    asked = pb.ModelMetadataRequest(name="m", version="1")
    assert admin.model_metadata(asked).versions == ["1"]
