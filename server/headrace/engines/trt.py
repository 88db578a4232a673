"""TensorRT plans as an engine: one engine, a context for each slot, weights on the GPU once.

What TensorRT is (standard, lean or RTX) follows from the plan's first bytes. The parts: `plan` (the
header), `trt_modules` (the import), `trt_load` (the file), `trt_tensors` (inputs and outputs),
`trt_shapes` (output shapes), `trt_checked` and `trt_context` (execution).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.device.base import ALIGNMENT_BYTES, Device, Stream
from headrace.engines.base import Shape
from headrace.engines.plan import PlanHeader, read_plan_header
from headrace.engines.profiles import choose, select
from headrace.engines.trt_checked import CheckedContext, Specialization, open_checked_contexts
from headrace.engines.trt_context import TrtContext
from headrace.engines.trt_load import LoadedPlan, load_plan
from headrace.engines.trt_modules import Backend, open_backend
from headrace.engines.trt_shapes import OutputShapes
from headrace.engines.trt_tensors import EngineTensors, pack_values, read_tensors
from headrace.errors import ConfigError, EngineError, HeadraceError

log = logging.getLogger(__name__)

PLATFORM = "tensorrt_plan"


@dataclass(frozen=True, slots=True)
class TrtOptions:
    """How a plan is loaded.

    Attributes:
        allow_host_code: Let a plan bring code that runs on the host; trust the file as a program.
        profiles: Optimization profiles to use; empty for all. `use_profiles` can narrow it later.
        specialization: RTX only: compile kernels for each new shape in the background ("lazy"),
            at once ("eager": steady latency after warm-up, and graphs may be captured), or never.
        takes_shape_tensors: The caller binds shape tensors to host addresses and gives their values
            to `output_shapes`; else a plan that has them is refused, since it could not be run.
    """

    allow_host_code: bool = False
    profiles: tuple[int, ...] = ()
    specialization: Specialization = "lazy"
    takes_shape_tensors: bool = False


def open_engine(path: Path, device: Device, *, options: TrtOptions | None = None) -> TrtEngine:
    """Load a plan.

    Args:
        path: The plan file.
        device: An opened GPU: TensorRT must not be touched before one has been proven.
        options: How to load it.

    Raises:
        ConfigError: The file is no plan, or none that can be served here; says why.
        DeviceError: The GPU failed.
    """
    header = read_plan_header(path)
    try:
        if device.kind != "cudart":
            raise ConfigError(f"needs an NVIDIA GPU, but the device is {device.kind!r}")
        return _open(open_backend(header.kind), header, device, options or TrtOptions())
    except ConfigError as error:
        fault = ConfigError(error.reason, path=str(path), field=error.field)
    except EngineError as error:
        fault = ConfigError(str(error), path=str(path))
    raise fault  # without the other's traceback: who keeps a fault must not keep GPU memory by it


def _open(backend: Backend, header: PlanHeader, device: Device, options: TrtOptions) -> TrtEngine:
    load = partial(load_plan, backend, header, device, allow_host_code=options.allow_host_code)
    with ExitStack() as undo:
        plan = load()
        undo.callback(plan.close)
        tensors = read_tensors(backend, plan.engine)
        if not options.takes_shape_tensors:
            _refuse_shape_tensors(tensors)
        stream = device.open_stream()
        undo.callback(stream.close)
        spare = open_checked_contexts(
            plan, device, select(tensors.profiles, options.profiles), stream, options.specialization
        )
        shapes = OutputShapes(tensors.signature, spare)
        undo.callback(shapes.close)
        shapes.prove()
        stream.close()  # nothing is ever enqueued on it: it was there to select profiles
        undo.pop_all()
    engine = TrtEngine(
        plan, tensors, shapes, header=header, device=device, options=options, load=load
    )
    log.info("%s: %s", header.path, engine.describe())
    return engine


class TrtEngine:
    """A loaded plan; `open_engine` makes it.

    Attributes:
        header: What the plan file says about itself.
        capabilities: Which TensorRT runs it, and what that can do.
        profiles: The optimization profiles in use.
        profile_rows: The most rows of a batch, for every profile of the plan by index.
    """

    platform = PLATFORM
    pads_to_graphs = False

    def __init__(
        self,
        plan: LoadedPlan,
        tensors: EngineTensors,
        shapes: OutputShapes,
        *,
        header: PlanHeader,
        device: Device,
        options: TrtOptions,
        load: Callable[[], LoadedPlan],
    ) -> None:
        self.header = header
        self.capabilities = plan.backend.can
        self.signature = tensors.signature
        self.profiles = select(tensors.profiles, options.profiles)
        self.profile_rows = tuple(profile.max_rows for profile in tensors.profiles)
        self.weights_bytes = _weights_bytes(plan)
        # Kernels that RTX swaps in later would leave a graph with the old ones.
        lazy = self.capabilities.has_specialization and options.specialization == "lazy"
        self.is_capturable = not lazy
        self.is_blocking = False  # a plan with control flow on the host shows itself at warm-up
        self._plan = plan
        self._device = device
        self._options = options
        self._tensors = tensors
        self._shapes = shapes
        self._load = load

    @property
    def activation_bytes(self) -> int:
        """Device memory that each context needs besides the shared weights."""
        return max(self._tensors.memory_bytes[profile.index] for profile in self.profiles)

    def describe(self) -> str:
        """Say in one line what was loaded."""
        num_aux = self._plan.engine.num_aux_streams
        return (
            f"{self.header.describe()}, run by {self.capabilities.name} "
            f"{self.capabilities.version}; weights {self.weights_bytes} bytes, activations "
            f"{self.activation_bytes} bytes a context, {len(self.profiles)} of "
            f"{len(self._tensors.profiles)} profiles in use, {num_aux} auxiliary streams a context"
        )

    def trial_shapes(self) -> Sequence[tuple[Shape, ...]]:
        """Return the optimum of every profile in use."""
        return [tuple(each.optimum for each in profile.inputs) for profile in self.profiles]

    def use_profiles(self, wanted: Sequence[int]) -> None:
        """Serve only these optimization profiles; before any context is opened.

        Raises:
            ConfigError: The plan has no such profile.
        """
        try:
            self.profiles = select(self.profiles, wanted)
        except ConfigError as error:
            raise ConfigError(
                error.reason, path=str(self.header.path), field=error.field
            ) from error
        self._shapes.keep_only(self.profiles)

    def check_inputs(self, shapes: Sequence[Shape]) -> None:
        """Refuse shapes that no optimization profile takes.

        Raises:
            RequestError: Names the input, its shape and the allowed range.
        """
        if not self._shapes.is_known(tuple(shapes)):
            choose(self.profiles, shapes)

    def shapes_under(self, shapes: Sequence[Shape], values: Sequence[bytes]) -> tuple[Shape, ...]:
        """Return the output shapes under these values; see `ShapedByValues`."""
        found = self._shapes.ask(tuple(shapes), tuple(values))
        if found is None:
            raise EngineError(f"{len(values)} shape tensors came, which are not all there are")
        return found

    def trial_values(self) -> Sequence[tuple[bytes, ...]]:
        """Return the optimum of every profile in use."""
        specs = [spec for spec in self.signature.inputs if spec.is_shape_tensor]
        return [
            tuple(
                pack_values(spec, bounds.optimum)
                for spec, bounds in zip(specs, profile.values, strict=True)
            )
            for profile in self.profiles
        ]

    def output_shapes(
        self, shapes: Sequence[Shape], values: Sequence[bytes] = ()
    ) -> tuple[Shape, ...] | None:
        """Return the output shapes for these input shapes.

        Args:
            shapes: One for each input.
            values: The bytes of each shape tensor among the inputs, in their order. Without them
                the shapes of a plan with shape tensors are not known: None.

        Raises:
            RequestError: The plan takes no such shapes or values.
            EngineError: TensorRT cannot tell; has its reason.
        """
        return self._shapes.ask(tuple(shapes), tuple(values))

    def open_context(self, stream: Stream) -> TrtContext:
        """Open a context that will enqueue on `stream` and on no other; waits for the stream.

        Raises:
            EngineError: TensorRT refuses; has its reason.
            DeviceError: There is no memory for it.
        """
        try:
            return self._open_context(stream)
        except HeadraceError as error:
            # Who keeps the error must not keep, by its frames, the contexts and their GPU memory.
            error.__traceback__ = error.__cause__ = error.__context__ = None
            raise

    def close(self) -> None:
        """Free the engine; a second call does nothing."""
        self._shapes.close()
        self._plan.close()

    def _open_context(self, stream: Stream) -> TrtContext:
        if self._plan.engine is None:
            raise EngineError("the engine is closed")
        with ExitStack() as undo:
            memory = self._device.alloc_device(max(self.activation_bytes, ALIGNMENT_BYTES))
            undo.callback(memory.close)
            contexts = self._open_contexts(stream, undo)
            for each in contexts:
                each.give_memory(memory)
            return TrtContext(
                self.signature,
                self.output_shapes,
                contexts,
                stream=stream,
                memory=memory,
                resources=undo.pop_all(),
            )

    def _open_contexts(self, stream: Stream, undo: ExitStack) -> list[CheckedContext]:
        """Open a context for each profile, on the shared engine where TensorRT lets it."""
        device, profiles, how = self._device, self.profiles, self._options.specialization
        try:
            contexts = open_checked_contexts(self._plan, device, profiles, stream, how)
        except EngineError as error:
            log.warning(
                "%s: a context gets an engine of its own, with %d bytes of weights, because the "
                "shared engine does not give one: %s",
                self.header.path,
                self.weights_bytes,
                str(error),  # a log record that is kept must not keep the error's frames
            )
            own = self._load()
            undo.callback(own.close)
            contexts = open_checked_contexts(own, device, profiles, stream, how)
        for each in contexts:
            undo.callback(each.close)
        return contexts


def _refuse_shape_tensors(tensors: EngineTensors) -> None:
    for spec in tensors.signature.inputs:
        if spec.is_shape_tensor:
            raise ConfigError(
                f"input {spec.name!r} is a shape tensor (its values decide the shapes of others), "
                "which is not served: build the plan with the values fixed, or with the sizes as "
                "dynamic dimensions"
            )


def _weights_bytes(plan: LoadedPlan) -> int:
    if not plan.backend.can.has_engine_stat:
        return 0
    stat = plan.backend.trt.EngineStat.TOTAL_WEIGHTS_SIZE
    return max(int(plan.engine.get_engine_stat(stat)), 0)
