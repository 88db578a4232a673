"""Loads models: opens the engine, completes and checks the config, opens and warms the slots.

One model's fault never touches another: it is kept as the reason in the catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from headrace.catalog import ModelCatalog
from headrace.device.base import Device
from headrace.engines.base import Engine
from headrace.engines.ensemble_plan import load_order
from headrace.engines.graph_spec import wants_graphs
from headrace.engines.initial_state import read_initial_states
from headrace.engines.labels import read_labels
from headrace.engines.load_facts import LoadFacts
from headrace.engines.model_config import check, complete, model_spec, unhonoured
from headrace.engines.model_folder import ModelSource
from headrace.engines.model_spec import ModelSpec
from headrace.engines.platforms import ONNX
from headrace.engines.repository import Found
from headrace.engines.warmup_config import samples_of
from headrace.ensemble import open_ensemble
from headrace.errors import ConfigError, HeadraceError
from headrace.lines import open_line
from headrace.metrics import Metrics, ModelMetrics
from headrace.model import ServedModel, in_engine_order
from headrace.opening import Opened, SlotOpener
from headrace.response_cache.store import ModelCache, ResponseCache
from headrace.sequence_seats import MAX_STATE_BYTES
from headrace.slots.blocks import BlockPool
from headrace.warm_samples import WarmSamples
from headrace_proto.v1 import model_config_pb2 as config_pb

log = logging.getLogger(__name__)

NO_CACHE = (
    "response_cache.enable is set, but this server keeps no replies: start it with "
    "--cache-config=local,size=BYTES"
)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the operator set for all models."""

    auto_complete: bool = True
    default_num_slots: int = 0  # 0: by device
    default_max_queue_size: int = 1024
    max_sequence_state_bytes: int = MAX_STATE_BYTES
    ort_intra_op_threads: int = 1
    allow_host_code: bool = False
    cuda_graphs: Literal["auto", "on", "off"] = "auto"


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
        cache: ResponseCache | None = None,
        catalog: ModelCatalog | None = None,
    ) -> None:
        """Prepare.

        Args:
            device: Where models run.
            blocks: Where they are warmed up.
            metrics: Where they are counted.
            options: The operator's.
            clock: Seconds.
            cache: Of answers; None without one.
            catalog: Where ensembles find their models; without it none can be loaded.
        """
        self._device = device
        self._blocks = blocks
        self._metrics = metrics
        self._options = options
        self._cache = cache
        self._catalog = ModelCatalog() if catalog is None else catalog
        self._opener = SlotOpener(
            device, blocks, clock=clock, default_num_slots=options.default_num_slots
        )

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
        if source.is_ensemble:
            return self._load_ensemble(source, version)
        path = source.versions[version]
        free_bytes = self._free_bytes()
        with ExitStack() as undo:
            engine = self._open_engine(path, source)
            undo.callback(engine.close)
            config = self._config(source, engine)
            labels = read_labels(config, source.folder)
            initial = read_initial_states(config, source.folder)
            spec = in_engine_order(
                model_spec(config, engine.signature, version, labels=labels, initial_states=initial)
            )
            engine.use_profiles(spec.profiles)
            opened = self._open_slots(source, engine, spec, config)
            undo.callback(opened.pool.close)
            spec = replace(spec, batching=opened.batching)
            metrics = self._metrics.model(spec.name, str(version))
            bounds = self._options.default_max_queue_size, self._options.max_sequence_state_bytes
            line = open_line(spec, opened, metrics, *bounds)
            undo.pop_all()
        if opened.footprint is not None:
            log.info("%s version %d takes %s", spec.name, version, opened.footprint)
        return ServedModel(
            spec,
            config,
            engine,
            line,
            kinds=opened.kinds,
            warm=opened.layouts,
            least_rows=opened.least_rows,
            footprint=opened.footprint,
            graphs=opened.graphs,
            taken_bytes=max(free_bytes - self._free_bytes(), 0),
            cache=self._open_cache(config, metrics),
        )

    def _load_ensemble(self, source: ModelSource, version: int) -> ServedModel:
        most = self._options.default_max_queue_size
        ensemble = open_ensemble(source, version, self._catalog, self._metrics, max_queue_size=most)
        _warn_unhonoured(source)
        return ensemble

    def _open_cache(
        self, config: config_pb.ModelConfig, metrics: ModelMetrics
    ) -> ModelCache | None:
        """Return a place for the model's replies, where it wants that and there is one."""
        if not config.response_cache.enable:
            return None
        if self._cache is None:
            log.warning("%s: %s", config.name, NO_CACHE)
            return None
        metrics.cache.is_used = True
        return self._cache.open()

    def _free_bytes(self) -> int:
        """Return what is free on a device with memory of its own."""
        return 0 if self._device.is_unified else self._device.memory_info()[0]

    def _open_slots(
        self, source: ModelSource, engine: Engine, spec: ModelSpec, config: config_pb.ModelConfig
    ) -> Opened:
        """Open the slots and warm them up; a fault of the configuration gets its file's name."""
        samples = WarmSamples(samples_of(config), spec, engine, source.folder, self._blocks)
        try:
            given = source.config
            is_asked = given.HasField("dynamic_batching") or given.HasField("sequence_batching")
            opened = self._opener.open(engine, spec, config, is_batching_asked=is_asked)
            with ExitStack() as undo:
                undo.callback(opened.pool.close)
                layouts = samples.run(opened.pool, opened.kinds)
                undo.pop_all()
            return replace(opened, layouts=[*opened.layouts, *layouts])
        except ConfigError as error:
            path = error.path or str(source.config_path)
            raise ConfigError(error.reason, path=path, field=error.field) from error

    def _config(self, source: ModelSource, engine: Engine) -> config_pb.ModelConfig:
        """Return the completed configuration.

        Raises:
            ConfigError: It has faults; all of them are told.
        """
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
        _warn_unhonoured(source)
        return config

    def _open_engine(self, path: Path, source: ModelSource) -> Engine:
        if source.config.platform == "tensorrt_plan":
            from headrace.engines.trt import TrtOptions, open_engine

            return open_engine(
                path,
                self._device,
                options=TrtOptions(
                    allow_host_code=self._options.allow_host_code,
                    takes_shape_tensors=True,
                    # Kernels that are swapped in later would miss in a graph.
                    specialization="eager" if self._wants_graphs(source.config) else "lazy",
                ),
            )
        from headrace.engines.ort import OrtEngine, OrtOptions

        return OrtEngine(
            path, self._device, OrtOptions(intra_op_threads=self._options.ort_intra_op_threads)
        )

    def _wants_graphs(self, config: config_pb.ModelConfig) -> bool:
        """Say whether a model has CUDA graphs, by its configuration or else by ours."""
        usual = self._options.cuda_graphs
        is_chosen = usual == "on" or (usual == "auto" and config.platform == ONNX.name)
        return wants_graphs(config, default=is_chosen and self._device.kind == "cudart")

    def _facts(self, source: ModelSource, engine: Engine) -> LoadFacts:
        gpus = (self._device.index,) if self._device.kind == "cudart" else ()
        return LoadFacts(
            gpus=gpus,
            num_slots=self._opener.num_slots,
            profile_rows=engine.profile_rows,
            default_max_batch_size=source.default_max_batch_size,
            has_graphs=self._wants_graphs(source.config),
        )


def _together(faults: list[ConfigError], source: ModelSource) -> ConfigError:
    return ConfigError("; ".join(str(fault) for fault in faults), path=str(source.folder))


def _warn_unhonoured(source: ModelSource) -> None:
    for field in unhonoured(source.config):
        log.warning("%s: %s is set, but headrace does not honour it yet", source.name, field)


def load_all(found: Found, loader: Loader, catalog: ModelCatalog) -> int:
    """Load every version of every model that was found; return the number of faults.

    Each fault is logged and kept in the catalog; the other models are served.
    """
    num_faults = len(found.faults)
    for note in found.notes:
        log.info("%s", note)
    models = {id(fault): name for name, faults in found.wrong.items() for fault in faults}
    for fault in found.faults:
        log.error("%s", fault)
        catalog.add_failed(models.get(id(fault), "repository"), 0, str(fault))
    for source in load_order(found.models):
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
