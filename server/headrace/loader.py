"""Loads models: opens the engine, completes and checks the config, opens and warms the slots.

One model's fault never touches another: it is kept as the reason in the catalog.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headrace.catalog import ModelCatalog
from headrace.device.base import Device, Stream
from headrace.device.host import HostDevice
from headrace.engines.base import Engine, Layout
from headrace.engines.labels import read_labels
from headrace.engines.load_facts import LoadFacts
from headrace.engines.model_config import check, complete, model_spec, unhonoured
from headrace.engines.model_folder import CONFIG_FILENAME, ModelSource
from headrace.engines.model_spec import ModelSpec
from headrace.engines.repository import Found
from headrace.errors import ConfigError, EngineError, HeadraceError
from headrace.metrics import Metrics
from headrace.model import ServedModel, in_engine_order, reserve_blocks, trial_layouts, warm_up
from headrace.scheduling.batcher import SingleBatcher
from headrace.scheduling.line import Line
from headrace.slots.blocks import BlockPool
from headrace.slots.pool import SlotPool
from headrace.slots.slot import NUM_LANES, Slot

log = logging.getLogger(__name__)

GPU_SLOTS = 2  # where nothing says otherwise: one computes while the other copies
NUM_TRIALS = 20  # the least of so many runs is what the model takes
LEAST_HAND_OVER_S = 50e-6
"""In a busy server both threads want the interpreter lock; an idle measurement does not show it."""
LONG_RUN_S = 0.005  # longer than any hand-over: no need to measure more often


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the operator set for all models."""

    auto_complete: bool = True
    default_num_slots: int = 0  # 0: by device
    default_max_queue_size: int = 1024
    ort_intra_op_threads: int = 1
    allow_host_code: bool = False


class Loader:
    """Turns what was found in a repository into served models."""

    def __init__(
        self,
        device: Device,
        blocks: BlockPool,
        metrics: Metrics,
        options: LoadOptions,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._device = device
        self._blocks = blocks
        self._metrics = metrics
        self._options = options
        self._clock = clock

    @property
    def compute_capability(self) -> str:
        """The GPU's, such as "9.0"; empty on the CPU."""
        capability: str = getattr(self._device, "compute_capability", "")
        return capability

    def load(self, source: ModelSource, version: int) -> ServedModel:
        """Load one version of a model.

        Raises:
            HeadraceError: It cannot be served; says the file, the field and the reason. Nothing of
                it stays open.
        """
        path = source.versions[version]
        with ExitStack() as undo:
            engine = self._open_engine(path, source)
            undo.callback(engine.close)
            facts = self._facts(source, engine)
            config = complete(
                source.config,
                engine.signature,
                auto_complete=self._options.auto_complete,
                facts=facts,
                path=str(source.config_path),
            )
            faults = check(config, engine.signature, facts=facts, path=str(source.config_path))
            if faults:
                raise faults[0] if len(faults) == 1 else _together(faults, source)
            for field in unhonoured(source.config):
                log.warning(
                    "%s: %s is set, but headrace does not honour it yet", source.name, field
                )
            _refuse_shape_tensors(engine, path)
            labels = read_labels(config, source.folder)
            spec = in_engine_order(model_spec(config, engine.signature, version, labels=labels))
            engine.use_profiles(spec.profiles)
            pool = self._open_slots(engine, spec)
            undo.callback(pool.close)
            line = Line(
                model=spec.name,
                batcher=SingleBatcher(),
                pool=pool,
                metrics=self._metrics.model(spec.name, str(version)),
                max_queue_size=spec.max_queue_size or self._options.default_max_queue_size,
            )
            undo.pop_all()
        return ServedModel(spec, config, engine, line)

    def _open_engine(self, path: Path, source: ModelSource) -> Engine:
        if source.config.platform == "tensorrt_plan":
            from headrace.engines.trt import TrtOptions, open_engine

            return open_engine(
                path,
                self._device,
                options=TrtOptions(allow_host_code=self._options.allow_host_code),
            )
        from headrace.engines.ort import OrtEngine, OrtOptions

        return OrtEngine(
            path, self._device, OrtOptions(intra_op_threads=self._options.ort_intra_op_threads)
        )

    def _facts(self, source: ModelSource, engine: Engine) -> LoadFacts:
        gpus = (self._device.index,) if self._device.kind == "cudart" else ()
        return LoadFacts(
            gpus=gpus,
            num_slots=self._num_slots(),
            profile_rows=engine.profile_rows,
            default_max_batch_size=source.default_max_batch_size,
        )

    def _num_slots(self) -> int:
        if self._options.default_num_slots:
            return self._options.default_num_slots
        return GPU_SLOTS if self._device.kind == "cudart" else len(os.sched_getaffinity(0))

    def _open_slots(self, engine: Engine, spec: ModelSpec) -> SlotPool:
        """Open the slots and run each once, so that the first request finds them warm.

        A model on the CPU that runs shorter than a hand-over to a thread gets one slot that runs it
        on the stepping thread instead: there the hand-over would cost more than the model.
        """
        layouts = trial_layouts(engine)
        self._refuse_what_never_fits(layouts, spec)
        if isinstance(self._device, HostDevice) and self._is_short(engine, layouts[0], spec):
            stream: Stream = self._device.open_inline_stream()
            return SlotPool([self._open_slot(0, engine, stream, is_inline=True)])
        num_slots = spec.num_slots or self._num_slots()
        slots: list[Slot] = []
        try:
            for index in range(num_slots):
                slots.append(self._open_slot(index, engine, self._device.open_stream()))
                for layout in layouts:
                    self._try(slots[-1], layout, spec)
        except BaseException:
            SlotPool(slots).close()
            raise
        for layout in layouts:
            reserve_blocks(self._blocks, layout, num_slots * NUM_LANES, self._device)
        return SlotPool(slots)

    def _refuse_what_never_fits(self, layouts: list[Layout], spec: ModelSpec) -> None:
        for layout in layouts:
            if not self._blocks.fits(layout.size_bytes):
                raise ConfigError(
                    f"a request to {spec.name} and its reply need {layout.size_bytes} bytes of "
                    "staging memory, more than there is; raise --pinned-memory-pool-byte-size"
                )

    def _open_slot(
        self, index: int, engine: Engine, stream: Stream, *, is_inline: bool = False
    ) -> Slot:
        with ExitStack() as undo:
            undo.callback(stream.close)
            context = engine.open_context(stream)
            undo.callback(context.close)
            slot = Slot(
                index,
                self._device,
                stream,
                context,
                clock=self._clock,
                num_lanes=1 if is_inline else NUM_LANES,
                has_marks=self._device.kind == "cudart",
                is_inline=is_inline,
            )
            undo.pop_all()
        return slot

    def _is_short(self, engine: Engine, layout: Layout, spec: ModelSpec) -> bool:
        device = self._device
        assert isinstance(device, HostDevice)
        slot = self._open_slot(0, engine, device.open_inline_stream(), is_inline=True)
        try:
            best_s = min(self._try(slot, layout, spec) for _ in range(2))
            for _ in range(NUM_TRIALS if best_s < LONG_RUN_S else 0):
                best_s = min(best_s, self._try(slot, layout, spec))
        finally:
            slot.close()
        hand_over_s = max(device.hand_over_s(), LEAST_HAND_OVER_S)
        log.info(
            "%s takes %.0f us, a hand-over %.0f us", spec.name, best_s * 1e6, hand_over_s * 1e6
        )
        return best_s < hand_over_s

    def _try(self, slot: Slot, layout: Layout, spec: ModelSpec) -> float:
        """Return how long zeros took; for ever, when the model refuses zeros."""
        try:
            return warm_up(slot, layout, self._blocks)
        except EngineError as error:
            log.info("%s refuses a warm-up run on zeros: %s", spec.name, error)
            return float("inf")


def _together(faults: list[ConfigError], source: ModelSource) -> ConfigError:
    return ConfigError("; ".join(str(fault) for fault in faults), path=str(source.folder))


def _refuse_shape_tensors(engine: Engine, path: Path) -> None:
    """Their values must lie in host memory while everything else is copied to the device."""
    names = [spec.name for spec in engine.signature.inputs if spec.is_shape_tensor]
    if names:
        raise ConfigError(
            f"the inputs {', '.join(names)} are shape tensors, which are not served yet; build the "
            "engine with its shapes taken from ordinary inputs",
            path=str(path),
        )


def load_all(found: Found, loader: Loader, catalog: ModelCatalog) -> int:
    """Load every version of every model that was found; return the number of faults.

    Each fault is logged and kept in the catalog; the other models are served.
    """
    num_faults = len(found.faults)
    for note in found.notes:
        log.info("%s", note)
    for fault in found.faults:
        log.error("%s", fault)
        catalog.add_failed(_name_of(fault), 0, str(fault))
    for source in found.models:
        for version in source.versions:
            try:
                catalog.add(loader.load(source, version))
            except HeadraceError as error:
                log.error("%s version %d is not served: %s", source.name, version, error)
                catalog.add_failed(source.name, version, str(error))
                num_faults += 1
            except Exception:
                log.exception("%s version %d is not served because of a bug", source.name, version)
                catalog.add_failed(
                    source.name, version, "internal error; the server's log says more"
                )
                num_faults += 1
    return num_faults


def _name_of(fault: ConfigError) -> str:
    """Name the model that a fault belongs to, as well as its path can tell."""
    path = Path(fault.path or "repository")
    return path.parent.name if path.name == CONFIG_FILENAME else path.name
