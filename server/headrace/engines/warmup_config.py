"""`model_warmup` of a configuration: what a model is run with at load; what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath

from headrace.engines.base import Shape
from headrace.escape import cited
from headrace_proto import datatypes
from headrace_proto.v1 import model_config_pb2 as config_pb

FIELD = "model_warmup"
FOLDER = "warmup"  # in the model's own, as Triton has it
MAX_RUNS = 10_000  # of one sample on one lane: a load must end
EMPTY_ELEMENT_BYTES = 4  # a BYTES element of no bytes is its length alone

Fault = tuple[str, str]  # field, reason
Warmup = config_pb.ModelWarmup


@dataclass(frozen=True, slots=True)
class SampleInput:
    """One input of a sample.

    Attributes:
        row_shape: Of one row; of the whole input where it has no batch dimension.
        num_rows: None where it has none.
        datatype: The protocol's name.
        kind: "zero_data", "random_data" or "input_data_file".
        file: What the last one names.
    """

    row_shape: Shape
    num_rows: int | None
    datatype: str
    kind: str
    file: str = ""

    @property
    def shape(self) -> Shape:
        """The client's, the batch dimension first where there is one."""
        return self.row_shape if self.num_rows is None else (self.num_rows, *self.row_shape)

    @property
    def rows(self) -> int:
        """How often the data of one row stand there."""
        return 1 if self.num_rows is None else self.num_rows

    @property
    def size_bytes(self) -> int:
        """Of one row; of BYTES, when its elements are empty."""
        itemsize_bytes = datatypes.DATATYPES[self.datatype].itemsize_bytes
        return prod(self.row_shape) * (itemsize_bytes or EMPTY_ELEMENT_BYTES)


@dataclass(frozen=True, slots=True)
class Sample:
    """One request that a model is warmed up with.

    Attributes:
        index: Of the configuration's samples.
        name: For messages.
        rows: Each row has the same data.
        count: How often it runs on a lane.
        inputs: By name.
    """

    index: int
    name: str
    rows: int
    count: int
    inputs: Mapping[str, SampleInput]

    @property
    def field(self) -> str:
        """Where it stands in the configuration."""
        return f"{FIELD}[{self.index}]"


def samples_of(config: config_pb.ModelConfig) -> list[Sample]:
    """Return the samples of a configuration without a fault, without those of no rows."""
    return [
        Sample(
            index,
            warmup.name or f"sample {index}",
            max(warmup.batch_size, 1),
            max(warmup.count, 1),
            {
                tensor.name: _input(warmup.inputs[tensor.name], tensor, warmup, config)
                for tensor in config.input
            },
        )
        for index, warmup in enumerate(config.model_warmup)
        if not is_skipped(warmup, config)
    ]


def is_skipped(warmup: Warmup, config: config_pb.ModelConfig) -> bool:
    """Say whether a sample has no rows though the model batches: Triton passes it over."""
    return config.max_batch_size > 0 and warmup.batch_size == 0


def check_warmup(config: config_pb.ModelConfig, folder: Path | None = None) -> Iterator[Fault]:
    """Yield (field, reason) for everything that is wrong with the samples.

    Args:
        config: With its inputs; one without inputs is not held against them.
        folder: The model's, to look for data files; None to leave them out.
    """
    inputs = {tensor.name: tensor for tensor in config.input}
    for index, warmup in enumerate(config.model_warmup):
        at = f"{FIELD}[{index}]"
        most = max(config.max_batch_size, 1)
        if warmup.batch_size > most:
            yield f"{at}.batch_size", f"{warmup.batch_size} is more than the model takes, {most}"
        if warmup.count > MAX_RUNS:
            yield f"{at}.count", f"{warmup.count} runs would take too long; {MAX_RUNS} is the most"
        if not inputs or is_skipped(warmup, config):
            continue
        for name in sorted(inputs.keys() - warmup.inputs.keys()):
            yield f"{at}.inputs", f'the model needs "{name}", which is missing'
        for name in sorted(warmup.inputs):
            field = f'{at}.inputs["{cited(name)}"]'
            if name in inputs:
                yield from _input_faults(warmup.inputs[name], inputs[name], field)
                yield from _file_faults(warmup.inputs[name].input_data_file, field, folder)
            else:
                yield field, f"the model has no such input; it takes {', '.join(sorted(inputs))}"


def data_path(filename: str, folder: Path) -> Path | None:
    """Return where a data file lies, None when its name leads out of the model's warmup folder."""
    parts = PurePosixPath(filename)
    if not filename or parts.is_absolute() or ".." in parts.parts or "\0" in filename:
        return None
    return folder / FOLDER / parts


def _input_faults(given: Warmup.Input, tensor: config_pb.ModelInput, at: str) -> Iterator[Fault]:
    if given.data_type != tensor.data_type:
        got, wanted = map(config_pb.DataType.Name, (given.data_type, tensor.data_type))
        yield f"{at}.data_type", f"{got} came, but the model takes {wanted}"
    dims, wanted_dims = list(given.dims), list(tensor.dims)
    if any(size < 1 for size in dims):
        yield f"{at}.dims", f"{dims}: each must be 1 or more, for there are real data behind it"
    elif len(dims) != len(wanted_dims) or any(
        wanted not in (-1, size) for size, wanted in zip(dims, wanted_dims, strict=True)
    ):
        yield f"{at}.dims", f"{dims} do not fit the input's dims, {wanted_dims}"
    if given.WhichOneof("input_data_type") is None:
        yield at, "needs one of zero_data, random_data and input_data_file"
    elif given.HasField("input_data_file") and not given.input_data_file:
        yield f"{at}.input_data_file", "names no file"


def _file_faults(filename: str, at: str, folder: Path | None) -> Iterator[Fault]:
    if not filename:
        return
    path = data_path(filename, folder or Path())
    if path is None:
        reason = f'leads out of the model\'s folder "{FOLDER}"; put the file there'
        yield f"{at}.input_data_file", f"{cited(repr(filename))} {reason}"
    elif folder is not None and not _is_file(path):
        yield f"{at}.input_data_file", f'there is no file "{FOLDER}/{filename}"'


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is longer than a file's may be, for one
        return False


def _input(
    given: Warmup.Input,
    tensor: config_pb.ModelInput,
    warmup: Warmup,
    config: config_pb.ModelConfig,
) -> SampleInput:
    has_rows = config.max_batch_size > 0 and not tensor.is_shape_tensor
    return SampleInput(
        tuple(given.dims),
        warmup.batch_size if has_rows else None,
        datatypes.from_config(given.data_type),
        given.WhichOneof("input_data_type") or "",
        given.input_data_file,
    )
