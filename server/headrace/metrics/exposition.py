"""Writes a registry in the format that a scraper asks for.

OpenMetrics wants every counter's name to end in `_total`; Triton's do not. There they are of type
"unknown", which promises nothing and keeps the name. The older text format has no such rule, so
there they are declared as the counters that they are.
"""

from __future__ import annotations

import re
from typing import Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from headrace.metrics.catalogue import CATALOGUE

_COUNTERS: Final = [
    family.name
    for family in CATALOGUE.values()
    if family.kind == "counter" and not family.name.endswith("_total")
]
_UNTYPED: Final = re.compile(rf"^# TYPE ({'|'.join(_COUNTERS)}) untyped$".encode(), re.MULTILINE)


def render(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """Return the registry as text and its content type.

    Args:
        registry: What to collect.
        accept: The scraper's Accept header; OpenMetrics when it asks for that, else plain text.
    """
    encode, content_type = choose_encoder(accept)
    body = encode(registry)
    if content_type.startswith("text/plain"):
        body = _UNTYPED.sub(rb"# TYPE \1 counter", body)
    return body, content_type
