"""The shape of the ladder's JSON, written down a second time, for tests that read it."""

from __future__ import annotations

from numbers import Real
from typing import Any

RUNG = {
    "name": str,
    "slots": int,
    "lanes": int,
    "rows": int,
    "is_synchronous": bool,
    "has_graphs": bool,
    "window": int,
}
SHARES = ("host_share", "copy_share", "compute_share", "hidden_copy_share", "nvml_share")
POSITIVE = ("seconds", "num_requests", "rows_per_s", "latency_p50_ms", "latency_p99_ms", "factor")
TOP = {
    *("schema", "model", "platform", "device", "inputs", "seconds_per_rung", "full_share"),
    *("rungs", "recommendation"),
}


def check_report(report: dict[str, Any]) -> None:
    """Fails where a key is missing, too many, or of another kind."""
    assert report.keys() == TOP
    assert report["schema"] == "headrace-ladder/1"
    for name, shape in report["inputs"].items():
        assert isinstance(name, str)
        assert all(isinstance(dim, int) for dim in shape)
    for rung in report["rungs"]:
        assert rung.keys() == {*RUNG, "error", "figures"}
        _check_settings(rung)
        assert (rung["error"] is None) != (rung["figures"] is None)
        if rung["figures"] is not None:
            _check_figures(rung["figures"])
    if report["recommendation"] is not None:
        assert report["recommendation"].keys() == {"throughput", "latency"}
        for choice in report["recommendation"].values():
            assert choice.keys() == {*RUNG, "reason"}
            _check_settings(choice)


def _check_settings(rung: dict[str, Any]) -> None:
    assert all(isinstance(rung[key], kind) for key, kind in RUNG.items())


def _check_figures(figures: dict[str, Any]) -> None:
    assert figures.keys() == {*POSITIVE, *SHARES, "enqueue_us", "limit"}
    assert all(isinstance(figures[key], Real) and figures[key] > 0 for key in POSITIVE)
    assert figures["latency_p50_ms"] <= figures["latency_p99_ms"]
    for key in SHARES:
        share = figures[key]
        assert share is None or 0 <= share <= 1 + 1e-9, f"{key} {share}"
    limit = figures["limit"]
    assert limit.keys() == {"resource", "share", "is_full"}
    assert limit["resource"] in ("host", "copy", "compute")
    assert limit["share"] == figures[f"{limit['resource']}_share"]
