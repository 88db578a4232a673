"""Checks the inputs of a request against the model: names, datatypes, shapes and sizes."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engines.base import Shape, TensorSpec
from headrace.engines.layout import num_elements
from headrace.errors import RequestError
from headrace.escape import cited
from headrace.link.base import Served
from headrace.regions.part import RegionPart
from headrace_proto.datatypes import DATATYPES
from headrace_proto.tensors import TensorError, contents_to_raw
from headrace_proto.v1 import inference_pb2 as pb

Buffer = bytes | memoryview
Tensor = Buffer | RegionPart
VARIABLE = -1  # the size of a BYTES tensor: its elements tell, and who reads them counts them

InputTensor = pb.ModelInferRequest.InferInputTensor


def match_inputs(request: pb.ModelInferRequest, served: Served) -> tuple[int, ...]:
    """Pair the model's inputs with the request's.

    Returns:
        For each input of the spec, its index among the request's inputs.

    Raises:
        RequestError: Inputs are missing, unknown or named twice.
    """
    model = served.spec.name
    places: dict[str, int] = {}
    for index, tensor in enumerate(request.inputs):
        if tensor.name in places:
            raise RequestError(f"input '{cited(tensor.name)}' for model '{model}' is given twice")
        places[tensor.name] = index
    wanted = [spec.name for spec in served.spec.inputs]
    unknown = [name for name in places if name not in wanted]
    if unknown:
        raise RequestError(
            f"unexpected inference input {quoted(unknown)} for model '{model}'; "
            f"it takes {quoted(wanted)}"
        )
    missing = [name for name in wanted if name not in places]
    if missing:
        raise RequestError(
            f"expected {len(wanted)} inputs but got {len(places)} inputs for model '{model}': "
            f"missing {quoted(missing)}"
        )
    return tuple(places[name] for name in wanted)


def check_shapes(
    request: pb.ModelInferRequest, served: Served, order: Sequence[int], max_elements: int
) -> tuple[tuple[Shape, ...], int]:
    """Check datatype and shape of every input.

    Returns:
        The client's shapes in the spec's order, and the rows (1 where the model has no batches).

    Raises:
        RequestError: Names the input, what came and what was expected.
    """
    spec = served.spec
    shapes: list[Shape] = []
    rows: int | None = None
    for want, place in zip(spec.inputs, order, strict=True):
        tensor = request.inputs[place]
        _check_datatype(tensor, want, spec.name)
        shape = tuple(tensor.shape)
        _check_shape(shape, want, spec.name)
        if num_elements(shape) > max_elements:
            raise RequestError(
                f"input '{want.name}' for model '{spec.name}' has {num_elements(shape)} elements; "
                f"this server takes at most {max_elements} a tensor; the operator can raise "
                "--max-elements"
            )
        if spec.max_batch_size > 0 and not want.is_shape_tensor:
            rows = _check_rows(rows, shape[0], want, served)
        shapes.append(shape)
    return tuple(shapes), 1 if rows is None else rows


def check_strings(served: Served, shapes: Sequence[Shape], most: int) -> None:
    """Count the BYTES elements of a request: each costs its share, however short it is.

    Raises:
        RequestError: There are more than `most`.
    """
    pairs = zip(served.spec.inputs, shapes, strict=True)
    count = sum(num_elements(shape) for spec, shape in pairs if spec.datatype == "BYTES")
    if count > most:
        raise RequestError(
            f"the request has {count} BYTES elements for model '{served.spec.name}'; this server "
            f"takes at most {most} a request: send them in several, or ask the operator to raise "
            "--max-strings"
        )


def raw_tensors(
    inputs: Sequence[InputTensor], raw: Sequence[Buffer], model: str
) -> Sequence[Buffer]:
    """Return the bytes of each of these inputs of a request, in their order.

    Raises:
        RequestError: Both or neither of raw and typed contents are there, or they do not fit.
    """
    if raw:
        for tensor in inputs:
            if tensor.HasField("contents"):
                raise RequestError(
                    "contents field must not be specified when using raw_input_contents for "
                    f"input '{tensor.name}' for model '{model}'"
                )
        if len(raw) != len(inputs):
            raise RequestError(
                f"expected one raw_input_contents for each of the {len(inputs)} inputs for model "
                f"'{model}' but got {len(raw)}; those in shared memory have none"
            )
        return raw
    return [_from_contents(tensor, model) for tensor in inputs]


def expected_sizes(served: Served, shapes: Sequence[Shape]) -> tuple[int, ...]:
    """Return the bytes that each input must have; VARIABLE for BYTES."""
    sizes = []
    for spec, shape in zip(served.spec.inputs, shapes, strict=True):
        item = DATATYPES[spec.datatype].itemsize_bytes
        sizes.append(num_elements(shape) * item if item else VARIABLE)
    return tuple(sizes)


def check_sizes(
    served: Served, shapes: Sequence[Shape], expected: Sequence[int], tensors: Sequence[Tensor]
) -> None:
    """Hold the bytes that came against the shapes.

    Elements of BYTES are for the engine to look at: it reads each on the slot's thread, and here
    all others would wait meanwhile.

    Raises:
        RequestError: Names the input, the bytes that came and those expected.
    """
    for spec, shape, size, tensor in zip(
        served.spec.inputs, shapes, expected, tensors, strict=True
    ):
        if size not in (VARIABLE, len(tensor)):
            raise RequestError(
                f"input byte size mismatch for input '{spec.name}' for model "
                f"'{served.spec.name}'. Expected {size} for shape {list(shape)} of "
                f"{spec.datatype}, got {len(tensor)}"
            )


def here(tensor: Tensor) -> Buffer:
    """Return the bytes of a tensor whose values are looked at: those never stay in a region."""
    assert not isinstance(tensor, RegionPart)
    return tensor


def quoted(names: Sequence[str]) -> str:
    """List names for a message; many are cut short."""
    shown = [f"'{cited(name)}'" for name in names[:8]]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")


def _check_datatype(tensor: InputTensor, want: TensorSpec, model: str) -> None:
    if tensor.datatype != want.datatype:
        known = "" if tensor.datatype in DATATYPES else " (no datatype of the protocol)"
        raise RequestError(
            f"inference input '{want.name}' data-type is '{cited(tensor.datatype)}'{known}, but "
            f"model '{model}' expects '{want.datatype}'"
        )


def _check_shape(shape: Shape, want: TensorSpec, model: str) -> None:
    is_right = len(shape) == len(want.shape) and all(
        got >= 0 and expected in (None, got)
        for got, expected in zip(shape, want.shape, strict=True)
    )
    if not is_right:
        expected = [-1 if dim is None else dim for dim in want.shape]
        raise RequestError(
            f"unexpected shape for input '{want.name}' for model '{model}'. Expected {expected}, "
            f"got {list(shape[:16])}"
            + (", all dimensions given" if min(shape, default=0) < 0 else "")
        )


def _check_rows(rows: int | None, got: int, want: TensorSpec, served: Served) -> int:
    spec = served.spec
    if got < 1 or got > spec.max_batch_size:
        raise RequestError(
            f"inference request batch-size must be <= {spec.max_batch_size} for '{spec.name}' and "
            f"at least 1, got {got} for input '{want.name}'"
        )
    if rows is not None and got != rows:
        raise RequestError(
            f"input '{want.name}' batch size does not match other inputs for '{spec.name}': "
            f"{got} against {rows}"
        )
    return got


def _from_contents(tensor: InputTensor, model: str) -> Buffer:
    if not tensor.HasField("contents"):
        raise RequestError(
            f"input '{tensor.name}' for model '{model}' has no data: send raw_input_contents or "
            "contents"
        )
    try:
        return contents_to_raw(tensor.contents, tensor.datatype, num_elements(tuple(tensor.shape)))
    except TensorError as error:
        raise RequestError(f"input '{tensor.name}' for model '{model}': {error}") from error
