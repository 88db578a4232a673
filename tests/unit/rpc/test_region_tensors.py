"""Heads that say where tensors lie: kept like others, and right when the regions are replaced."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.device.sim import SimDevice
from headrace.errors import (
    HeadraceError,
    NotFoundError,
    OverloadedError,
    RequestError,
    TooLargeError,
)
from headrace.link.local import LocalLink
from headrace.regions.part import RegionPart
from headrace.rpc.infer import InferService
from headrace.rpc.prepare import Limits, Prepared, Preparer
from headrace.rpc.region_parameters import part_of, part_parameters
from headrace.rpc.status import Status
from headrace.rpc.wishes import Metadata
from headrace.scheduling.request import Request
from headrace.slots.blocks import BlockPool
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import split_request
from helpers.core_rig import Rig
from helpers.served import catalog_of, served
from helpers.shared_files import SharedFiles

PAIR = served("a FP32[?,4] b INT32[?,2]", "p FP32[?,4] q INT32[?,2]", "max_batch_size: 8", name="m")
TEXT = served("c BYTES[?,1]", "d BYTES[?,1]", "max_batch_size: 8", name="text")
SHAPED = served(
    "!s INT32[2] x FP32[?,4]",
    "y FP32[?,4]",
    "max_batch_size: 8",
    name="shaped",
    shapes_of=lambda shapes: (shapes[1],),
)
STATEFUL = served(
    "start FP32[?,1] x FP32[?,4] had FP32[?,2]",
    "y FP32[?,4] has FP32[?,2]",
    """max_batch_size: 4 sequence_batching {
  control_input { name: "start" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } }
  state { input_name: "had" output_name: "has" data_type: TYPE_FP32 dims: [2] } }""",
    name="stateful",
    shapes_of=lambda shapes: (shapes[1], shapes[2]),
)
CATALOG = catalog_of(PAIR, TEXT, SHAPED, STATEFUL)
A, B = bytes(range(16)), bytes(range(100, 108))
P, Q = bytes(range(50, 66)), bytes(range(8))
SPECS = {
    "a": ("FP32", [1, 4]),
    "b": ("INT32", [1, 2]),
    "c": ("BYTES", [1, 1]),
    "s": ("INT32", [2]),
    "x": ("FP32", [1, 4]),
}


def message(
    model: str, inputs: dict[str, bytes | RegionPart], outputs: dict[str, RegionPart | None]
) -> bytes:
    """A request whose tensors come in the message or lie in regions, in this order."""
    request = pb.ModelInferRequest(model_name=model)
    for name, data in inputs.items():
        datatype, shape = SPECS[name]
        tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
        if isinstance(data, RegionPart):
            place(tensor, data)
        else:
            request.raw_input_contents.append(data)
    for name, part in outputs.items():
        output = request.outputs.add(name=name)
        if part is not None:
            place(output, part)
    return request.SerializeToString()


def place(tensor: Any, part: RegionPart) -> None:
    for name, value in part_parameters(part, part.size_bytes).items():
        tensor.parameters[name].CopyFrom(value)


class Front:
    """What checks heads, over regions `r` and `o` of 100 bytes each."""

    def __init__(self, folder: Path) -> None:
        self.files = SharedFiles(folder)
        self.files.make("r", bytes(4) + A + B + bytes(72))
        self.files.make("o", bytes(100))
        self.table = self.files.table()
        self.table.register("r", "r", 0, 100, 0)
        self.table.register("o", "o", 0, 100, 0)
        self.preparer = Preparer(CATALOG, Limits(), lambda *_: lambda *_: None, regions=self.table)
        self.device = SimDevice()
        self.blocks = BlockPool(self.device, 1 << 20)

    def prepare(self, raw: bytes) -> tuple[Prepared, Sequence[Any]]:
        parts = split_request(raw)
        return self.preparer.prepare(parts.head, parts.raw)

    def request(self, raw: bytes) -> tuple[Request, Prepared]:
        prepared, tensors = self.prepare(raw)
        request = prepared.make(
            prepared.served.line,
            prepared.layout_of(tensors),
            tensors,
            rows=prepared.rows,
            deadline=None,
            received_at=0.0,
            parsed_at=0.0,
            on_end=lambda *_: None,
        )
        prepared.submit(request, 0.0)
        return request, prepared

    def staged(self, raw: bytes) -> list[bytes]:
        """The inputs as they are in the block, in the model's order."""
        request, _ = self.request(raw)
        block = self.blocks.lease(request.layout.size_bytes)
        assert block is not None
        request.stage(block)
        places = zip(request.layout.input_offsets, request.layout.input_sizes, strict=True)
        seen = [bytes(block.view[at : at + size]) for at, size in places]
        self.blocks.release(block)
        request.let_go()
        return seen


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    made = Front(tmp_path)
    yield made
    assert [region.num_uses for region in made.table.listed("")] == [0] * len(made.table.listed(""))
    made.table.close()
    made.blocks.close()
    made.device.close()


@pytest.mark.parametrize(
    "inputs",
    [
        {"a": RegionPart("r", 4, 16), "b": RegionPart("r", 20, 8)},
        {"b": RegionPart("r", 20, 8), "a": RegionPart("r", 4, 16)},
        {"a": A, "b": RegionPart("r", 20, 8)},
        {"a": RegionPart("r", 4, 16), "b": B},
        {"b": RegionPart("r", 20, 8), "a": A},
        {"b": B, "a": RegionPart("r", 4, 16)},
    ],
)
def test_inputs_from_regions_and_from_the_message(
    front: Front, inputs: dict[str, bytes | RegionPart]
) -> None:
    """In any order; only those that are not in regions have an entry in the message."""
    for _ in range(2):  # checked, then looked up
        assert front.staged(message("m", inputs, {})) == [A, B]


def test_equal_heads_are_checked_once_and_regions_looked_up_each_time(front: Front) -> None:
    """A region of the same name may be another by then, or none."""
    raw = message("m", {"a": RegionPart("r", 4, 16), "b": B}, {})
    first, _ = front.prepare(raw)
    front.table.unregister("r")
    front.files.make("other", bytes(4) + bytes(reversed(A)))
    front.table.register("r", "other", 0, 20, 0)
    second, _ = front.prepare(raw)
    assert second is first
    assert front.staged(raw) == [bytes(reversed(A)), B]
    front.table.unregister("r")
    with pytest.raises(NotFoundError):
        front.request(raw)


def test_a_head_counts_the_tensors_of_its_message(front: Front) -> None:
    """One more or less than when it was kept is found out."""
    good = message("m", {"a": RegionPart("r", 4, 16), "b": B}, {})
    front.prepare(good)
    parts = split_request(good)
    for raw in ([], [*parts.raw, parts.raw[0]]):
        with pytest.raises(RequestError):
            front.preparer.prepare(parts.head, raw)


def test_a_part_has_the_size_of_its_tensor(front: Front) -> None:
    """As tensors in messages."""
    for size in (0, 15, 17):
        with pytest.raises(RequestError, match=f"Expected 16 .* got {size}"):
            front.prepare(message("m", {"a": RegionPart("r", 0, size), "b": B}, {}))


def test_bytes_are_read_at_once(front: Front) -> None:
    """What the client changes later is not seen, wherever they are looked at."""
    raw = message("text", {"c": RegionPart("r", 0, 8)}, {})
    path = front.files.folder / "r"
    for word in (b"abcd", b"efgh"):
        path.write_bytes(struct.pack("<I", 4) + word + bytes(92))
        _, tensors = front.prepare(raw)
        path.write_bytes(bytes(100))
        assert [bytes(tensor) for tensor in tensors] == [struct.pack("<I", 4) + word]
    with pytest.raises(NotFoundError):
        front.prepare(message("text", {"c": RegionPart("no", 0, 8)}, {}))


def test_shape_tensors_are_read_at_once(front: Front) -> None:
    """The layout follows the values that were there."""
    raw = message("shaped", {"s": RegionPart("r", 0, 8), "x": RegionPart("r", 4, 16)}, {})
    for values in ((1, 2), (3, 4)):
        (front.files.folder / "r").write_bytes(struct.pack("<2i", *values) + bytes(92))
        prepared, tensors = front.prepare(raw)
        assert prepared.layout_of(tensors).values == (struct.pack("<2i", *values),)


def test_a_part_of_a_sequence(front: Front) -> None:
    """What its model is told goes before and behind what lies in the region."""
    request = pb.ModelInferRequest.FromString(
        message("stateful", {"x": RegionPart("r", 4, 16)}, {})
    )
    request.parameters["sequence_id"].int64_param = 7
    request.parameters["sequence_start"].bool_param = True
    start, x, _ = front.staged(request.SerializeToString())
    assert (start, x) == (struct.pack("<f", 1.0), A)


def test_replies_say_where_outputs_are(front: Front) -> None:
    """An empty entry in the place of each that is in a region, so that the others keep theirs."""
    part = RegionPart("o", 8, 40)
    raw = message("m", {"a": A, "b": B}, {"q": None, "p": part})
    request, prepared = front.request(raw)
    outputs = [((1, 4), memoryview(P)), ((1, 2), memoryview(Q))]
    for number in ("1", "2"):
        reply = pb.ModelInferResponse.FromString(prepared.writer.write(number, outputs))
        assert list(reply.raw_output_contents) == [Q, b""]
        q, p = reply.outputs
        assert (q.name, dict(q.parameters), p.name, list(p.shape)) == ("q", {}, "p", [1, 4])
        said = part_of("output 'p'", p.parameters, is_offered=True)
        assert said == RegionPart("o", 8, 16), "as many bytes as were written"
    request.end(outputs, None)
    assert (front.files.folder / "o").read_bytes() == bytes(8) + P + bytes(76)


def test_the_size_of_bytes_is_said_anew_for_each_reply(front: Front) -> None:
    """Of the same shape they differ."""
    data = struct.pack("<I", 4) + b"abcd"
    raw = message("text", {"c": data}, {"d": RegionPart("o", 0, 50)})
    request, prepared = front.request(raw)
    for size in (5, 9, 5):
        outputs = [((1, 1), bytes(size))]
        reply = pb.ModelInferResponse.FromString(prepared.writer.write("", outputs))
        said = part_of("output 'd'", reply.outputs[0].parameters, is_offered=True)
        assert said == RegionPart("o", 0, size)
    request.let_go()


def test_what_is_read_at_once_is_bounded_as_a_message(front: Front) -> None:
    """Whatever else may be larger; nothing is read before it is refused."""
    bounded = Preparer(
        CATALOG, Limits(), lambda *_: lambda *_: None, front.table, max_early_bytes=7
    )
    parts = split_request(message("text", {"c": RegionPart("r", 0, 8)}, {}))
    with pytest.raises(TooLargeError, match="have 8 bytes; this server takes 7 a request"):
        bounded.prepare(parts.head, parts.raw)
    assert front.table.num_read_bytes == 0
    parts = split_request(message("m", {"a": RegionPart("r", 4, 16), "b": B}, {}))
    bounded.prepare(parts.head, parts.raw)


def test_names_that_the_model_does_not_have(front: Front) -> None:
    """Refused as ever."""
    with pytest.raises(RequestError, match="unexpected inference output 'r'"):
        front.prepare(message("m", {"a": A, "b": B}, {"r": RegionPart("o", 0, 8)}))
    with pytest.raises(RequestError, match="unexpected inference input"):
        front.prepare(message("m", {"a": A, "b": B, "x": RegionPart("r", 0, 16)}, {}))


class Told:
    """A call that keeps how it failed."""

    def __init__(self) -> None:
        self.statuses: list[Status] = []

    def metadata(self) -> Metadata:
        return ()

    def respond(self, reply: bytes) -> None:
        raise AssertionError(reply)

    def fail(self, status: Status) -> None:
        self.statuses.append(status)


class FullLink(LocalLink):
    """Has no room."""

    def submit(self, request: Request, now: float) -> None:
        raise OverloadedError("full")


def test_a_request_that_is_refused_holds_no_region(front: Front) -> None:
    """Whatever refuses it after its regions were taken; the fixture looks at them."""
    rig = Rig()
    service = InferService(
        CATALOG,
        FullLink(rig.scheduler),
        Limits(),
        clock=float,
        max_request_bytes=1000,
        regions=front.table,
    )
    raw = message("m", {"a": RegionPart("r", 4, 16), "b": B}, {"p": RegionPart("o", 0, 16)})
    call = Told()
    assert service.accept(raw, call, received_at=0.0, deadline=None) is None
    assert [status.text for status in call.statuses] == ["full"]
    rig.close()


def test_without_regions_nothing_is_offered() -> None:
    """The operator has to switch it on."""
    parts = split_request(message("m", {"a": RegionPart("r", 4, 16), "b": B}, {}))
    with pytest.raises(HeadraceError, match="Client shared memory is disabled: input 'a'"):
        Preparer(CATALOG, Limits()).prepare(parts.head, parts.raw)
