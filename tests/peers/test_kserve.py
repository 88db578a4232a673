"""kserve's own gRPC client, unmodified."""

from __future__ import annotations

import pytest

from helpers.environments import KSERVE, ClientRun, python_environment
from load.models import DTYPES

# It takes protobuf 6 and 300 MB of its own; its client knows no bfloat16.
KSERVE_DTYPES = set(DTYPES) - {"BF16"}


@pytest.mark.timeout(300)
def test_inference_grpc_client(client: ClientRun) -> None:
    """Live, ready, every datatype that it knows, raw and typed, and an error's status."""
    interpreter = python_environment("kserve", KSERVE)
    seen = client(interpreter, "kserve_client.py")
    assert (seen["live"], seen["ready"], seen["model_ready"]) == (True, True, True)
    assert set(seen["raw"]) == KSERVE_DTYPES
    assert set(seen["typed"]) == KSERVE_DTYPES - {"FP16"}, "there is no typed field for half floats"
    for how in ("raw", "typed"):
        assert [name for name, (sent, got) in seen[how].items() if sent != got] == []
    assert seen["unknown"] == "NOT_FOUND"
