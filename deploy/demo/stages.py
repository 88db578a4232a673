"""Where the time of a request went, read off the server's own histograms at /metrics."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

FAMILY = "headrace_stage_seconds"
SHOWN = ("receive", "stage", "queue", "execute", "reply", "total")


class StageClock:
    """Reads the stages of one model; `lap` tells what went by since the one before."""

    def __init__(self, metrics_address: str, model: str) -> None:
        self._url = f"http://{metrics_address}/metrics"
        self._model = model
        self._before = self._read()

    def lap(self) -> dict[str, float]:
        """Return the mean milliseconds of each stage over the requests since the last lap."""
        now, before = self._read(), self._before
        self._before = now
        laps = {}
        for stage in SHOWN:
            seconds, count = (
                a - b for a, b in zip(_of(now, stage), _of(before, stage), strict=True)
            )
            laps[stage] = 1000 * seconds / count if count else float("nan")
        return laps

    def _read(self) -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(self._url, timeout=10) as reply:
            text = reply.read().decode()
        return {
            (sample.labels["stage"], sample.name.removeprefix(FAMILY)): sample.value
            for family in text_string_to_metric_families(text)
            if family.name == FAMILY
            for sample in family.samples
            if sample.labels["model"] == self._model and "le" not in sample.labels
        }


def _of(samples: Mapping[tuple[str, str], float], stage: str) -> tuple[float, float]:
    return samples.get((stage, "_sum"), 0.0), samples.get((stage, "_count"), 0.0)
