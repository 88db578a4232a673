"""The one owner of all metrics: models record into it, the HTTP endpoint collects from it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from headrace.metrics.batch_rows import batch_rows
from headrace.metrics.catalogue import CATALOGUE, family
from headrace.metrics.gpu import GpuProbe
from headrace.metrics.histogram import BUCKETS_S, STAGES
from headrace.metrics.machine import CpuProbe, MachineCollector, Probe
from headrace.metrics.pace import Pace
from headrace.metrics.recorder import ModelMetrics, Reading

log = logging.getLogger(__name__)

_BUCKET_LABELS: Final = (*(str(bound_s) for bound_s in BUCKETS_S), "+Inf")
_US_NS: Final = 1000
_COUNTED: Final = ("nv_inference_", "nv_cache_")

_Labels = tuple[tuple[str, str], ...]
_Read = Callable[[], Iterable[tuple[dict[str, str], float]]]  # more labels, figure


class Metrics(Collector):
    """All models and sources, on a registry of their own; any thread may call any method."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._lock = threading.Lock()
        self._models: dict[tuple[str, str], ModelMetrics] = {}
        self._sources: dict[str, dict[_Labels, _Read]] = {}
        self._warned: set[tuple[str, _Labels]] = set()
        self._machine: MachineCollector | None = None

    def open_machine(self, *, cpu: bool, gpu: bool, interval_s: float) -> None:
        """Show the machine's own figures too, read at most once in `interval_s`."""
        self.close()
        probes: list[Probe] = [CpuProbe()] if cpu else []
        if gpu:
            probes.append(GpuProbe())
        self._machine = MachineCollector(probes, interval_s)
        self.registry.register(self._machine)

    def close(self) -> None:
        """Let go of the machine's figures; the counters stay. A second call does nothing."""
        machine, self._machine = self._machine, None
        if machine is not None:
            self.registry.unregister(machine)
            machine.close()

    def model(self, name: str, version: str) -> ModelMetrics:
        """Return the counters of a model version; the same object for the same arguments."""
        with self._lock:
            return self._models.setdefault((name, version), ModelMetrics(name, version))

    def remove_model(self, name: str, version: str) -> None:
        """Forget a model version and every source labelled with it; unknown ones are no error."""
        self.remove_sources(model=name, version=version)
        with self._lock:
            self._models.pop((name, version), None)

    def remove_sources(self, **labels: str) -> None:
        """Forget every source with these labels, whatever others it has."""
        wanted = set(labels.items())
        with self._lock:
            for readers in self._sources.values():
                for key in [key for key in readers if wanted <= set(key)]:
                    del readers[key]

    def add_source(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """Show what `read` returns at each scrape under `name`, in place of a former source.

        Args:
            name: A gauge or counter of the catalogue.
            read: Called from the scraping thread; a source that raises is left out of that scrape.
            labels: The same names for every source of one metric.
        """
        self._add(name, labels, lambda: [({}, read())])

    def add_table(
        self, name: str, label: str, read: Callable[[], Iterable[tuple[str, float]]], **labels: str
    ) -> None:
        """Show each (value of `label`, figure) that `read` returns; as `add_source` otherwise."""
        self._add(name, labels, lambda: [({label: value}, figure) for value, figure in read()])

    def remove_source(self, name: str, **labels: str) -> None:
        """Forget a source; an unknown one is no error."""
        with self._lock:
            self._sources.get(name, {}).pop(tuple(sorted(labels.items())), None)

    def collect(self) -> Iterator[Metric]:
        """Yield every family of models and sources, each model's figures of one moment.

        All are read before the first is yielded, which may be written in slices, and gauges before
        counters: what is no longer under way has been counted.
        """
        with self._lock:
            models = list(self._models.values())
            sources = {name: dict(readers) for name, readers in self._sources.items() if readers}
        families = [self._source_family(name, readers) for name, readers in sources.items()]
        readings = [(model, model.read()) for model in models]
        yield from _model_families(readings)
        yield from families

    def _add(self, name: str, labels: dict[str, str], read: _Read) -> None:
        assert name in CATALOGUE, f"{name} is not in metrics/catalogue.py"
        with self._lock:
            self._sources.setdefault(name, {})[tuple(sorted(labels.items()))] = read

    def _source_family(self, name: str, readers: dict[_Labels, _Read]) -> Metric:
        metric = family(name)
        for labels, read in readers.items():
            try:
                figures = [(more, float(figure)) for more, figure in read()]
            except Exception:
                # One broken source must hide no other figure, nor fill the log at each scrape.
                if (name, labels) not in self._warned:
                    self._warned.add((name, labels))
                    log.exception("metric %s%s cannot be read; it is left out", name, dict(labels))
                continue
            for more, figure in figures:
                metric.add_sample(name, {**dict(labels), **more}, figure)
        return metric


def _model_families(readings: list[tuple[ModelMetrics, Reading]]) -> Iterator[Metric]:
    families = {name: family(name) for name in CATALOGUE if name.startswith(_COUNTED)}
    del families["nv_inference_pending_request_count"]  # a source's
    dropped = family("headrace_dropped_total")
    stages = HistogramMetricFamily(
        "headrace_stage_seconds",
        CATALOGUE["headrace_stage_seconds"].help,
        labels=("model", "version", "stage"),
    )
    for model, reading in Pace().over(readings):
        labels = {"model": model.name, "version": model.version}
        counters = _inference_counters(reading)
        if model.cache.is_used:
            counters |= _cache_counters(reading)
        for name, value in counters.items():
            families[name].add_sample(name, labels, value)
        for reason, count in reading.failures.items():
            name = "nv_inference_request_failure"
            families[name].add_sample(name, {**labels, "reason": reason}, count)
        for drop_reason, count in reading.drops.items():
            dropped.add_sample("headrace_dropped_total", {**labels, "reason": drop_reason}, count)
        for stage, (counts, sum_s) in zip(STAGES, reading.stages, strict=True):
            buckets = list(zip(_BUCKET_LABELS, counts, strict=True))
            stages.add_metric((model.name, model.version, stage), buckets, sum_s)
    yield from families.values()
    yield dropped
    yield stages
    yield batch_rows(
        ((model.name, model.version), reading.statistics.batch_stats) for model, reading in readings
    )


def _inference_counters(reading: Reading) -> dict[str, float]:
    """Name the figures of one model as Triton does; failures apart, which have a label more."""
    statistics = reading.statistics
    return {
        "nv_inference_request_success": statistics.success.count,
        "nv_inference_count": statistics.inference_count,
        "nv_inference_exec_count": statistics.execution_count,
        "nv_inference_request_duration_us": statistics.success.ns / _US_NS,
        "nv_inference_queue_duration_us": statistics.queue.ns / _US_NS,
        "nv_inference_compute_input_duration_us": statistics.compute_input.ns / _US_NS,
        "nv_inference_compute_infer_duration_us": statistics.compute_infer.ns / _US_NS,
        "nv_inference_compute_output_duration_us": statistics.compute_output.ns / _US_NS,
    }


def _cache_counters(reading: Reading) -> dict[str, float]:
    hits, misses = reading.statistics.cache_hit, reading.statistics.cache_miss
    return {
        "nv_cache_num_hits_per_model": hits.count,
        "nv_cache_num_misses_per_model": misses.count,
        "nv_cache_hit_duration_per_model": hits.ns / _US_NS,
        "nv_cache_miss_duration_per_model": misses.ns / _US_NS,
    }
