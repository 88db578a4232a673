"""Writes a registry in the format that a scraper asks for.

OpenMetrics wants every counter's name to end in `_total`; Triton's do not. There they are of type
"unknown", which promises nothing and keeps the name. The older text format has no such rule, so
there they are declared as the counters that they are.

A page has some two hundred lines for each model, so it is written in slices (`metrics/pace.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from headrace.metrics.catalogue import CATALOGUE
from headrace.metrics.pace import Pace

_COUNTERS: Final = [
    family.name
    for family in CATALOGUE.values()
    if family.kind == "counter" and not family.name.endswith("_total")
]
_UNTYPED: Final = re.compile(rf"^# TYPE ({'|'.join(_COUNTERS)}) untyped$".encode(), re.MULTILINE)


class _Paced(Collector):
    """A registry whose samples are read in slices."""

    def __init__(self, registry: Collector) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        pace = Pace()
        for metric in self._registry.collect():
            samples: Any = pace.over(metric.samples)  # an encoder goes through them once
            metric.samples = samples
            yield metric


def render(registry: Collector, accept: str = "") -> tuple[bytes, str]:
    """Return the registry as text and its content type; others work meanwhile.

    Args:
        registry: What to collect.
        accept: The scraper's Accept header; OpenMetrics when it asks for that, else plain text.
    """
    encode, content_type = choose_encoder(accept)
    body = encode(_Paced(registry))
    if content_type.startswith("text/plain"):
        body = _UNTYPED.sub(rb"# TYPE \1 counter", body)
    return body, content_type
