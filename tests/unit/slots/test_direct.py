"""Tensors in memory of clients: the device copies them itself, alone and in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.device.sim import SimDevice
from headrace.engines.base import Shape
from headrace.slots.batch import Batch, ClientPtr, Direct
from helpers.batch_rig import STALE, Asked, BatchRig, expected

ROOM = 4096  # of a client's memory for one tensor
PLACES = st.dictionaries(st.sampled_from((0, 1)), st.booleans())  # -> whether on the device
Places = Mapping[int, bool]
HOST, DEVICE = {0: False, 1: False}, {0: True, 1: True}


class Client:
    """Memory of a client, room by room for the tensors of one request: inputs, then outputs.

    On the host, pinned, and on the device, shared; as much of each.
    """

    def __init__(self, device: SimDevice, asked: Asked) -> None:
        self.asked = asked
        self.memory = np.full(4 * ROOM, STALE, np.uint8)
        self.pinned = device.pin_host(self.memory.ctypes.data, 4 * ROOM)
        self.foreign = device.share_memory(4 * ROOM)
        self.shared = device.open_shared(self.foreign.handle)

    def take(self, inputs: Places, outputs: Places) -> None:
        """Have these inputs in the memory, and no more in the block, and want these outputs."""
        asked, layout = self.asked, self.asked.layout
        assert asked.block is not None
        for place, is_on_device in inputs.items():
            data, at = asked.inputs[place], layout.input_offsets[place]
            self._bytes(is_on_device)[place * ROOM : place * ROOM + data.size] = data.ravel()
            asked.block.view[at : at + data.size] = bytes([STALE]) * data.size
        if inputs or outputs:
            asked.direct = Direct(
                {place: self._ptr(place, inputs[place]) for place in inputs},
                {place: self._ptr(2 + place, outputs[place]) for place in outputs},
            )

    def answer(self, block: Sequence[tuple[Shape, bytes]]) -> list[tuple[Shape, bytes]]:
        """The answer, from where each output was wanted; its shape is the block's."""
        direct = {} if self.asked.direct is None else self.asked.direct.outputs
        made = []
        for place, (shape, data) in enumerate(block):
            if place not in direct:
                made.append((shape, data))
                continue
            at = (2 + place) * ROOM
            here = self._bytes(direct[place].is_on_device)
            made.append((shape, here[at : at + len(data)].tobytes()))
        return made

    def close(self) -> None:
        self.pinned.close()
        self.shared.close()

    def _bytes(self, is_on_device: bool) -> npt.NDArray[np.uint8]:
        return self.foreign.array if is_on_device else self.memory

    def _ptr(self, room: int, is_on_device: bool) -> ClientPtr:
        base = self.shared.ptr if is_on_device else self.pinned.ptr
        return ClientPtr(base + room * ROOM, is_on_device)


def run(rig: BatchRig, batch: Batch[Asked], wishes: Sequence[tuple[Places, Places]]) -> None:
    """Run a batch and hold each answer against numpy's."""
    assert isinstance(rig.device, SimDevice)
    clients = [Client(rig.device, asked) for asked in batch.requests]
    for client, wish in zip(clients, wishes, strict=False):
        client.take(*wish)
    answers = rig.run(batch)
    pairs = zip(clients, answers, strict=True)
    assert [client.answer(answer) for client, answer in pairs] == expected(batch)
    for client in clients:
        client.close()
    rig.release(batch)


def close(rig: BatchRig) -> None:
    rig.close()
    assert isinstance(rig.device, SimDevice)
    assert rig.device.leaks() == []
    rig.device.close()


def new() -> BatchRig:
    device = SimDevice()
    return BatchRig(device, device.open_stream())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.lists(st.tuples(PLACES, PLACES), min_size=5, max_size=5),
    st.integers(0, 3),
)
def test_any_tensors_of_any_requests(
    rows: list[int], wishes: list[tuple[Places, Places]], more_rows: int
) -> None:
    """Beside others that come by their blocks, in batches that are padded or not."""
    rig = new()
    if more_rows:
        rig.padded_to[sum(rows)] = sum(rows) + more_rows
    for _ in range(2):
        run(rig, rig.batch(*rows), wishes)
    close(rig)


@pytest.mark.parametrize("places", [HOST, DEVICE])
def test_copies_take_effect_by_the_event_and_no_sooner(places: Places) -> None:
    """Until then the memory belongs to the device, as blocks do."""
    rig = new()
    assert isinstance(rig.device, SimDevice)
    batch = rig.batch(2)
    client = Client(rig.device, batch.requests[0])
    client.foreign.array[:] = STALE
    client.take(places, places)
    lane = rig.enqueue(batch)
    for memory in (client.memory, client.foreign.array):
        assert set(memory[2 * ROOM :]) == {STALE}
    rig.end(lane)
    assert client.answer(rig.answers(lane)[0]) == expected(batch)[0]
    client.close()
    rig.release(batch)
    close(rig)


@pytest.mark.parametrize("wish", [({0: False}, {}), ({0: True}, {}), ({}, {1: True})])
def test_memory_that_is_let_go_of_too_early_is_found_out(wish: tuple[Places, Places]) -> None:
    """The virtual device knows what is pinned and what is open: the tests above can fail."""
    rig = new()
    assert isinstance(rig.device, SimDevice)
    batch = rig.batch(2)
    client = Client(rig.device, batch.requests[0])
    client.take(*wish)
    rig.enqueue(batch)
    client.close()
    with pytest.raises(AssertionError):
        rig.stream.synchronize()
