"""What is shown of a model that comes, is replaced, or goes."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from headrace.metrics import Metrics
from headrace.metrics.exposition import render
from headrace.observe import observe_model
from helpers.served import served


def shown(metrics: Metrics, name: str) -> list[float]:
    families = text_string_to_metric_families(render(metrics.registry)[0].decode())
    return [each.value for family in families for each in family.samples if each.name == name]


def test_a_replaced_version_shows_the_new_queue_and_goes_on_counting() -> None:
    """A counter that fell back to zero at each reload would be read as a restart."""
    metrics = Metrics()
    old, new = (served("x FP32[?,1]", "y FP32[?,1]") for _ in range(2))
    metrics.model("m", "1").dropped("queue_full")
    old.line.num_waiting, new.line.num_waiting = 3, 5
    observe_model(metrics, old)
    assert shown(metrics, "headrace_queue_length") == [3]
    observe_model(metrics, new)
    assert shown(metrics, "headrace_queue_length") == [5]
    assert metrics.model("m", "1").read().drops["queue_full"] == 1


def test_nothing_of_the_old_one_is_kept() -> None:
    """Neither a figure that the new one has not, nor what it was read from."""
    metrics = Metrics()
    metrics.add_source("headrace_graph_hits_total", lambda: 7, model="m", version="1")
    observe_model(metrics, served("x FP32[?,1]", "y FP32[?,1]"))
    assert shown(metrics, "headrace_graph_hits_total") == []
