"""What /metrics says can be read back by Prometheus's own parsers, in both formats."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as _parse_om
from prometheus_client.parser import text_string_to_metric_families as _parse_text

from headrace.metrics import BUCKETS_S, STAGES, Metrics
from headrace.metrics.catalogue import CATALOGUE
from headrace.metrics.exposition import render


def parse_text(text: str) -> list[Metric]:
    return list(_parse_text(text))


def parse_openmetrics(text: str) -> list[Metric]:
    return list(_parse_om(text))  # type: ignore[no-untyped-call]


OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ODD_NAME = 'odd "name"\n# TYPE nv_inference_count untyped\\'

TRITON_COUNTERS = {
    "nv_inference_request_success",
    "nv_inference_request_failure",
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
}


@pytest.fixture
def metrics() -> Metrics:
    metrics = Metrics()
    model = metrics.model("digits", "3")
    model.record((1e-4, 2e-4, 3e-4, math.nan, 1e-3, math.nan, 1e-4, 2e-3), 4, 1)
    model.fail(None, "BACKEND")
    model.dropped("queue_full")
    metrics.model(ODD_NAME, "1")
    metrics.add_source("headrace_queue_length", lambda: 5, model="digits", version="3")
    metrics.add_source("nv_inference_pending_request_count", lambda: 2, model="digits", version="3")
    metrics.add_source("headrace_poller_sweeps_total", lambda: 7)
    return metrics


def samples_of(families: Iterable[Metric]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Samples by name and labels; the text parser renames Triton's counters: undone here."""
    return {
        (
            family.name if family.name in TRITON_COUNTERS else sample.name,
            frozenset(sample.labels.items()),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def test_text_is_parsed_back(metrics: Metrics) -> None:
    """Every figure comes back from the text format under Triton's names, labels and units."""
    body, content_type = render(metrics.registry)
    assert content_type.startswith("text/plain; version=0.0.4")
    families = list(parse_text(body.decode()))
    samples = samples_of(families)
    labels = {("model", "digits"), ("version", "3")}
    expected = {
        "nv_inference_request_success": 1,
        "nv_inference_count": 4,
        "nv_inference_exec_count": 1,
        "nv_inference_request_duration_us": 2000,
        "nv_inference_queue_duration_us": 300,
        "nv_inference_compute_input_duration_us": 200,
        "nv_inference_compute_infer_duration_us": 1000,
        "nv_inference_compute_output_duration_us": 100,
        "nv_inference_pending_request_count": 2,
        "headrace_queue_length": 5,
    }
    for name, value in expected.items():
        assert samples[name, frozenset(labels)] == value, name
    failures = {
        reason: samples["nv_inference_request_failure", frozenset(labels | {("reason", reason)})]
        for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER")
    }
    assert failures == {"REJECTED": 1, "CANCELED": 0, "BACKEND": 1, "OTHER": 0}
    dropped = frozenset(labels | {("reason", "queue_full")})
    assert samples["headrace_dropped_total", dropped] == 1
    assert samples["headrace_poller_sweeps_total", frozenset()] == 7


def test_text_writes_names_without_a_suffix(metrics: Metrics) -> None:
    """The line that a dashboard's query meets begins with Triton's name as it is."""
    lines = render(metrics.registry)[0].decode().splitlines()
    assert 'nv_inference_count{model="digits",version="3"} 4.0' in lines
    assert not [line for line in lines if line.startswith("nv_") and "_total{" in line]


def test_text_declares_every_kind_as_the_catalogue_does(metrics: Metrics) -> None:
    """Triton's counters are counters in the text format although their names lack `_total`."""
    kinds = {
        family.name: family.type for family in parse_text(render(metrics.registry)[0].decode())
    }
    assert {name for name, kind in kinds.items() if kind == "counter"} >= TRITON_COUNTERS
    for name, kind in kinds.items():
        entry = CATALOGUE.get(name) or CATALOGUE[f"{name}_total"]
        assert kind == entry.kind, name


def test_openmetrics_is_parsed_back(metrics: Metrics) -> None:
    """A scraper that asks for OpenMetrics gets it, valid, with the same names and values."""
    body, content_type = render(metrics.registry, OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    families = list(parse_openmetrics(body.decode()))
    text = samples_of(parse_text(render(metrics.registry)[0].decode()))
    assert samples_of(families) == text
    kinds = {family.name: family.type for family in families}
    assert {kinds[name] for name in TRITON_COUNTERS} == {"unknown"}


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_an_odd_model_name_stays_inside_its_label(metrics: Metrics, accept: str) -> None:
    """Quotes, newlines and backslashes of a name come back as they were and declare nothing."""
    parse = parse_openmetrics if accept else parse_text
    samples = samples_of(parse(render(metrics.registry, accept)[0].decode()))
    key = frozenset({("model", ODD_NAME), ("version", "1")})
    assert samples["nv_inference_count", key] == 0


def test_stage_histogram_has_its_buckets(metrics: Metrics) -> None:
    """Each stage shows every bound, and a stage that was not measured counts nothing."""
    samples = samples_of(parse_text(render(metrics.registry)[0].decode()))

    def bucket(stage: str, bound: str) -> float:
        labels = {"model": "digits", "version": "3", "stage": stage, "le": bound}
        return samples["headrace_stage_seconds_bucket", frozenset(labels.items())]

    assert [bucket("total", str(bound)) for bound in BUCKETS_S[:4]] == [0, 0, 0, 1]
    assert bucket("execute", "0.001") == 1
    assert bucket("h2d", "+Inf") == 0
    assert all(bucket(stage, "+Inf") == (stage not in {"h2d", "d2h"}) for stage in STAGES)


def test_histograms_of_two_servers_add_up(metrics: Metrics) -> None:
    """The sum of two servers' buckets is what one server with all requests would show."""
    one, two, both = Metrics().model("m", "1"), Metrics().model("m", "1"), Metrics().model("m", "1")
    for index in range(200):
        stages = tuple(0.0001 * index * (place + 1) for place in range(len(STAGES)))
        (one if index % 3 else two).record(stages, 1, 1)
        both.record(stages, 1, 1)
    for (first, _), (second, _), (whole, _) in zip(
        one.read().stages, two.read().stages, both.read().stages, strict=True
    ):
        assert [a + b for a, b in zip(first, second, strict=True)] == whole


def test_a_removed_model_is_gone_with_its_sources(metrics: Metrics) -> None:
    """Nothing of a removed version is shown any more, and the others stay."""
    metrics.remove_model("digits", "3")
    metrics.remove_model("digits", "3")
    samples = samples_of(parse_text(render(metrics.registry)[0].decode()))
    assert not [name for name, labels in samples if ("model", "digits") in labels]
    assert samples["headrace_poller_sweeps_total", frozenset()] == 7


def test_a_broken_source_hides_nothing_else(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    """A source that raises is left out and logged once; the rest is shown."""
    metrics.add_source("headrace_slots_busy", lambda: 1 / 0, model="digits", version="3")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            samples = samples_of(parse_text(render(metrics.registry)[0].decode()))
    assert not [name for name, _ in samples if name == "headrace_slots_busy"]
    assert samples["headrace_poller_sweeps_total", frozenset()] == 7
    assert len(caplog.records) == 1
    metrics.remove_source("headrace_slots_busy", model="digits", version="3")


def test_a_table_is_shown_row_by_row(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever rows it has at the scrape; gone with its model; a broken one hides nothing else."""
    name, labels = "headrace_service_seconds", {"model": "digits", "version": "3"}
    rows = [("1", 0.5)]
    metrics.add_table(name, "rows", lambda: rows, **labels)
    metrics.add_table(name, "rows", lambda: [("1", 1 / 0)], model="broken", version="1")

    def shown() -> dict[str, float]:
        samples = samples_of(parse_text(render(metrics.registry)[0].decode()))
        return {dict(found)["rows"]: value for (of, found), value in samples.items() if of == name}

    assert shown() == {"1": 0.5}
    rows.append(("8", 0.75))
    with caplog.at_level(logging.ERROR):
        assert shown() == {"1": 0.5, "8": 0.75}
    metrics.remove_model("digits", "3")
    assert shown() == {}
    assert len(caplog.records) == 1


def test_a_model_is_one_object() -> None:
    """Asking twice for one version gives the same counters, another version has its own."""
    metrics = Metrics()
    assert metrics.model("m", "1") is metrics.model("m", "1")
    assert metrics.model("m", "1") is not metrics.model("m", "2")


@pytest.mark.parametrize(
    ("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)], ids=["text", "om"]
)
def test_rows_that_ran_together(accept: str, parse: Callable[[str], list[Metric]]) -> None:
    """Each execution once, by the rows of its batch; who shares it, fails or is cached in none."""
    metrics = Metrics()
    model = metrics.model("m", "1")
    run = (0.001,) * len(STAGES)
    for rows, num_runs in ((1, 3), (2, 2), (3, 1), (256, 1), (257, 4)):
        for _ in range(num_runs):
            model.record(run, 1, 1, rows)
            model.record(run, rows - 1, 0, rows)
    model.answered_from_cache(0.1, 0.1, 0.1)
    model.fail(None, "BACKEND")
    body, _ = render(metrics.registry, accept)
    samples = samples_of(parse(body.decode()))

    def value(name: str, **more: str) -> float:
        labels = {"model": "m", "version": "1", **more}
        return samples[f"headrace_batch_rows_{name}", frozenset(labels.items())]

    assert value("count") == 11
    assert value("sum") == 3 + 2 * 2 + 3 + 256 + 4 * 257
    bounds = {"1.0": 3, "2.0": 5, "4.0": 6, "128.0": 6, "256.0": 7, "+Inf": 11}
    assert {bound: value("bucket", le=bound) for bound in bounds} == bounds
