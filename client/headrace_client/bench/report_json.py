"""The report for programs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from headrace_client.bench.report import Report

SCHEMA = "headrace-bench/1"


def text(report: Report) -> str:
    """Write everything; units stand in the keys, and null is what was not measured."""
    return json.dumps(_plain({"schema": SCHEMA, **asdict(report)}), indent=2)


def _plain(value: Any) -> Any:
    """Return what JSON can say: no NaN, no infinity."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
