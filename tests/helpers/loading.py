"""A repository under a loader, on the CPU, and what it left open."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from headrace.catalog import ModelCatalog
from headrace.device.host import HostDevice
from headrace.engines.repository import find_models
from headrace.loader import Loader, LoadOptions, load_all
from headrace.metrics import Metrics
from headrace.slots.blocks import BlockPool

POOL_BYTES = 1 << 20


@dataclass
class Loading:
    """A repository, and everything that a loader needs."""

    folder: Path
    device: HostDevice = field(default_factory=HostDevice)
    options: LoadOptions = field(default_factory=LoadOptions)
    catalog: ModelCatalog = field(default_factory=ModelCatalog)
    loader_type: type[Loader] = Loader

    def __post_init__(self) -> None:
        self.blocks = BlockPool(self.device, POOL_BYTES)
        self.metrics = Metrics()

    def load(self) -> int:
        """Load all of it; return the number of faults."""
        loader = self.loader_type(
            self.device, self.blocks, self.metrics, self.options, clock=time.monotonic
        )
        return load_all(find_models([self.folder]), loader, self.catalog)

    def close(self) -> list[str]:
        """Close what is open; names of what was forgotten."""
        self.catalog.close()
        self.blocks.close()
        return self.device._ledger.names()
