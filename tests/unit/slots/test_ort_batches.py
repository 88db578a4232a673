"""ONNX models in batches on the CPU, held against ONNX Runtime called directly for each request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from headrace.device.host import HostDevice
from headrace.engines.kinds import Kinds
from headrace.engines.ort import OrtEngine
from headrace.errors import EngineError
from headrace.slots.batch import Batch
from headrace.slots.blocks import Block, BlockPool
from headrace.slots.capacity import Capacity
from headrace.slots.slot import Slot
from headrace.slots.trial_batches import TrialBatches
from helpers import onnx_models
from helpers.ort_rig import direct
from load.models import CATALOGUE, random_array

Array = npt.NDArray[Any]
MAX_ROWS = 16


class Member:
    """A request with its arrays."""

    def __init__(self, rig: OrtBatches, inputs: list[Array]) -> None:
        self.inputs = inputs
        self.rows = len(inputs[0])
        shapes = [each.shape for each in inputs]
        self.layout = rig.kinds.lay_out(shapes, [each.nbytes for each in inputs])
        self.block: Block | None = rig.blocks.lease(self.layout.size_bytes)
        assert self.block is not None
        for view, each in zip(self.block.parts(self.layout).inputs, inputs, strict=True):
            view[:] = each.tobytes()


class OrtBatches:
    """One slot of a model."""

    def __init__(self, path: Path, *, is_inline: bool) -> None:
        self.path = path
        self.device = HostDevice()
        self.engine = OrtEngine(path, self.device)
        self.kinds = Kinds(self.engine, MAX_ROWS)
        self.blocks = BlockPool(self.device, 256 << 20)
        device = self.device
        stream = device.open_inline_stream() if is_inline else device.open_stream()
        context = self.engine.open_context(stream)
        self.slot = Slot(0, device, stream, context, clock=perf_counter, is_inline=is_inline)

    def run(self, requests: list[list[Array]]) -> list[list[Array]]:
        """Run these requests' inputs as one batch and return the outputs of each."""
        members = [Member(self, inputs) for inputs in requests]
        kind = members[0].layout.kind
        assert kind is not None
        rows = sum(member.rows for member in members)
        lane = self.slot.lanes[0]
        self.slot.enqueue(lane, Batch(members, kind.layout(rows), rows))
        self.slot.synchronize()
        self.slot.in_flight.clear()
        try:
            if lane.error is not None:
                raise lane.error
            assert lane.event.is_done()
            return [self._answer(self.slot.outputs(lane, at)) for at in range(len(members))]
        finally:
            lane.free()
            for member in members:
                assert member.block is not None
                self.blocks.release(member.block)

    def close(self) -> None:
        """Close everything; nothing may be left."""
        self.slot.close()
        self.engine.close()
        self.blocks.close()
        assert self.device._ledger.names() == []

    def _answer(self, outputs: Any) -> list[Array]:
        specs = self.engine.signature.outputs
        dtypes = {"FP32": np.float32, "INT64": np.int64, "INT32": np.int32}
        return [
            np.frombuffer(bytes(content), dtypes[spec.datatype]).reshape(shape)
            for spec, (shape, content) in zip(specs, outputs, strict=True)
        ]


def two(rows: int, seed: int) -> list[Array]:
    """Inputs of the model with two."""
    return [random_array("FP32", (rows, 2), seed), random_array("INT64", (rows, 3), seed)]


def of(name: str) -> tuple[Callable[[], onnx.ModelProto], Callable[[int, int], list[Array]]]:
    """A model of the catalogue and its inputs."""
    entry = CATALOGUE[name]
    return entry.build, lambda rows, seed: [entry.sample(rows, seed=seed)]


MODELS = {"mlp": of("mlp"), "conv_u8": of("conv_u8"), "two": (onnx_models.two, two)}


@pytest.fixture(params=[False, True], ids=["launcher", "inline"])
def is_inline(request: pytest.FixtureRequest) -> bool:
    """Where the model runs."""
    inline: bool = request.param
    return inline


@pytest.fixture
def opened(tmp_path: Path, is_inline: bool) -> Iterator[Callable[[onnx.ModelProto], OrtBatches]]:
    """Opens a model, and closes it after the test."""
    rigs: list[OrtBatches] = []

    def open_model(built: onnx.ModelProto) -> OrtBatches:
        rigs.append(
            OrtBatches(onnx_models.save(built, tmp_path / "model.onnx"), is_inline=is_inline)
        )
        return rigs[-1]

    yield open_model
    for rig in rigs:
        rig.close()


@pytest.mark.parametrize("name", list(MODELS))
def test_each_request_gets_what_it_would_get_alone(
    opened: Callable[[onnx.ModelProto], OrtBatches], name: str
) -> None:
    """Mixed rows, batch after batch on the same lane; sums may be taken in another order."""
    build, inputs = MODELS[name]
    rig = opened(build())
    for turn, rows in enumerate([(1, 1), (3, 1, 2), (1,) * 8, (5,), (2, 2)]):
        requests = [inputs(each, 100 * turn + index) for index, each in enumerate(rows)]
        for request, answer in zip(requests, rig.run(requests), strict=True):
            for got, wanted in zip(answer, direct(rig.path, *request), strict=True):
                assert got.shape == wanted.shape
                assert np.allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_member_that_fails_the_run_fails_the_batch(
    opened: Callable[[onnx.ModelProto], OrtBatches],
) -> None:
    """The engine runs all or nothing; the next batch is right again."""
    rig = opened(onnx_models.picks())

    def place(*values: int) -> list[Array]:
        return [np.array(values, np.int64)]

    with pytest.raises(EngineError, match="ONNX Runtime failed"):
        rig.run([place(1), place(99)])
    first, second = rig.run([place(1, 2), place(0)])
    assert first[0].tolist() == direct(rig.path, *place(1, 2))[0].tolist()
    assert second[0].tolist() == direct(rig.path, *place(0))[0].tolist()


def test_a_real_model_has_a_table(opened: Callable[[onnx.ModelProto], OrtBatches]) -> None:
    """Every size was measured, and gathering counts in what it takes."""
    build, _ = MODELS["mlp"]
    rig = opened(build())
    layouts = {rows: rig.kinds.lay_out([(rows, 64)], [rows * 256]) for rows in (1, 16, 4)}
    capacity = Capacity()
    trials = TrialBatches(layouts, rig.blocks, clock=perf_counter, until=perf_counter() + 60)
    assert trials.measure(rig.slot, capacity) == {}
    assert [rows for rows, _ in capacity.table()] == [1, 4, 16]
    assert all(took_s > 0 for _, took_s in capacity.table())
    assert rig.blocks.num_leased == 0
