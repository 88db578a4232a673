"""Runs a model at load with what its configuration says: `model_warmup`, on every lane.

Nothing is served before that, and a sample that fails fails the load, as in Triton.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from headrace.engines.base import Engine, Layout
from headrace.engines.kinds import Kinds
from headrace.engines.model_spec import ModelSpec
from headrace.engines.warmup_config import Sample
from headrace.engines.warmup_data import row_data
from headrace.errors import ConfigError, DeviceError, HeadraceError, RequestError
from headrace.model import engine_shapes
from headrace.slots.blocks import BlockPool
from headrace.slots.pool import SlotPool
from headrace.slots.warmup import run_tensors

log = logging.getLogger(__name__)


class WarmSamples:
    """The samples of one model.

    Args:
        samples: As the configuration has them.
        spec: The model's, with its inputs in the engine's order.
        engine: Its engine.
        folder: Its folder, whose `warmup` holds the data files.
        blocks: Where requests are staged.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        spec: ModelSpec,
        engine: Engine,
        folder: Path,
        blocks: BlockPool,
    ) -> None:
        self._samples = samples
        self._spec = spec
        self._engine = engine
        self._folder = folder
        self._blocks = blocks

    def run(self, pool: SlotPool, kinds: Kinds) -> list[Layout]:
        """Run every sample on every lane, as often as it says; return their layouts.

        Raises:
            ConfigError: Names the sample, and says what is wrong with it or how it failed.
            DeviceError: The device is dead.
        """
        layouts = []
        for sample in self._samples:
            try:
                layouts.append(self._run(sample, pool, kinds))
            except HeadraceError as error:
                if isinstance(error, DeviceError) and error.sticky:
                    raise
                raise ConfigError(f'"{sample.name}" failed: {error}', field=sample.field) from error
        return layouts

    def _run(self, sample: Sample, pool: SlotPool, kinds: Kinds) -> Layout:
        given = [sample.inputs[tensor.name] for tensor in self._spec.inputs]
        self._check_fits(sum(each.size_bytes * each.rows for each in given))  # before it is made
        shapes = engine_shapes(self._engine, self._spec, [each.shape for each in given])
        tensors = [row_data(each, self._folder) * each.rows for each in given]
        values = [
            data
            for data, each in zip(tensors, self._spec.inputs, strict=True)
            if each.is_shape_tensor
        ]
        if self._spec.sequence is not None:
            tensors = self._spec.sequence.trial(tensors, sample.rows)
        layout = kinds.lay_out(shapes, [len(data) for data in tensors], values)
        self._check_fits(layout.size_bytes)
        for slot in pool.slots:
            lanes = slot.lanes if slot.lanes[0].memory is not None else slot.lanes[:1]
            for lane in lanes:
                for _ in range(sample.count):
                    run_tensors(slot, layout, tensors, self._blocks, lane=lane, rows=sample.rows)
        log.info("%s: warmed up with %r (%d rows)", self._spec.name, sample.name, sample.rows)
        return layout

    def _check_fits(self, size_bytes: int) -> None:
        if not self._blocks.fits(size_bytes):
            raise RequestError(
                f"it needs {size_bytes} bytes of staging memory, more than there is; raise "
                "--pinned-memory-pool-byte-size"
            )
