"""Every metric that /metrics can show: its name, its kind and its help text.

Names that start with `nv_` are Triton's, so that dashboards made for it work. Triton's counters
carry no `_total`; `exposition.py` says what that means for the formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client.core import Metric

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric name with all its label values."""

    name: str
    kind: Kind
    help: str


_CACHED = "cached requests not counted: they reach no model"

_FAMILIES: Final = (
    Family("nv_inference_request_success", "counter", "Requests answered, a batch counted once"),
    Family("nv_inference_request_failure", "counter", "Requests failed, a batch counted once"),
    Family("nv_inference_count", "counter", f"Inferences: rows of all requests ({_CACHED})"),
    Family("nv_inference_exec_count", "counter", f"Executions of the model ({_CACHED})"),
    Family(
        "nv_inference_request_duration_us",
        "counter",
        "Microseconds from receiving to replying, all answered requests together",
    ),
    Family(
        "nv_inference_queue_duration_us",
        "counter",
        "Microseconds that answered requests waited in the queue",
    ),
    Family(
        "nv_inference_compute_input_duration_us",
        "counter",
        f"Microseconds of staging inputs and copying them to the device ({_CACHED})",
    ),
    Family(
        "nv_inference_compute_infer_duration_us",
        "counter",
        f"Microseconds of executing the model ({_CACHED})",
    ),
    Family(
        "nv_inference_compute_output_duration_us",
        "counter",
        f"Microseconds of copying outputs from the device and writing replies ({_CACHED})",
    ),
    Family(
        "nv_inference_pending_request_count", "gauge", "Requests that wait for execution at present"
    ),
    Family("nv_cache_num_hits_per_model", "counter", "Requests answered from the response cache"),
    Family(
        "nv_cache_num_misses_per_model",
        "counter",
        "Requests answered by the model after they were looked up in the response cache in vain",
    ),
    Family(
        "nv_cache_hit_duration_per_model",
        "counter",
        "Microseconds of looking up what was found in the response cache",
    ),
    Family(
        "nv_cache_miss_duration_per_model",
        "counter",
        "Microseconds of looking up what was not there, and of keeping the reply",
    ),
    Family("nv_pinned_memory_pool_total_bytes", "gauge", "Pinned memory for staging blocks, bytes"),
    Family("nv_pinned_memory_pool_used_bytes", "gauge", "Pinned memory leased to requests, bytes"),
    Family(
        "nv_gpu_utilization", "gauge", "Share of time in which the GPU ran a kernel, 0.0 to 1.0"
    ),
    Family("nv_gpu_memory_total_bytes", "gauge", "Memory of the GPU, bytes"),
    Family("nv_gpu_memory_used_bytes", "gauge", "Memory of the GPU in use, bytes"),
    Family("nv_gpu_power_usage", "gauge", "Power that the GPU draws, watts"),
    Family("nv_gpu_power_limit", "gauge", "Limit of the GPU's power management, watts"),
    Family("nv_energy_consumption", "counter", "Energy used by the GPU since the start, joules"),
    Family("nv_cpu_utilization", "gauge", "Busy share of all CPU cores together, 0.0 to 1.0"),
    Family("nv_cpu_memory_total_bytes", "gauge", "Memory of the machine, bytes"),
    Family("nv_cpu_memory_used_bytes", "gauge", "Memory of the machine in use, bytes"),
    Family(
        "headrace_stage_seconds",
        "histogram",
        "Time of answered requests in each stage: receive, stage, queue, h2d, execute, d2h, reply, "
        "and total for all of them",
    ),
    Family(
        "headrace_batch_rows", "histogram", "Rows that ran together, of executions that answered"
    ),
    Family("headrace_slots_busy", "gauge", "Slots with at least one lane in flight"),
    Family("headrace_slots_pinned", "gauge", "Slots of a model that one stream has for itself"),
    Family("headrace_lanes_in_flight", "gauge", "Lanes whose work is enqueued and not yet done"),
    Family("headrace_streams", "gauge", "ModelStreamInfer calls that are open"),
    Family(
        "headrace_stream_bytes",
        "gauge",
        "Bytes of their requests and of replies to them that have not been written",
    ),
    Family("headrace_blocks_leased", "gauge", "Staging blocks leased to requests"),
    Family(
        "headrace_blocks_leased_bytes", "gauge", "Bytes of the staging blocks leased to requests"
    ),
    Family(
        "headrace_model_memory_bytes",
        "gauge",
        "Memory of a model by kind: weights, contexts and io on the device, pinned blocks (ahead) "
        "and gather (of lanes, for batches)",
    ),
    Family(
        "headrace_service_seconds",
        "gauge",
        "Time that a batch takes on a slot by its rows, copies included, as last seen",
    ),
    Family("headrace_graphs", "gauge", "CUDA graphs kept, one for each lane and shape"),
    Family("headrace_graph_hits_total", "counter", "Executions that replayed a CUDA graph"),
    Family(
        "headrace_graph_misses_total",
        "counter",
        "Executions without a CUDA graph where graphs are on, by reason: new, busy, cold, refused, "
        "host",
    ),
    Family("headrace_cache_bytes", "gauge", "Bytes that the response cache holds"),
    Family("headrace_cache_max_bytes", "gauge", "Bytes that it may hold"),
    Family("headrace_cache_entries", "gauge", "Replies in it"),
    Family("headrace_cache_evictions_total", "counter", "Replies that had to make room in it"),
    Family("headrace_regions", "gauge", "Regions of shared memory that clients have registered"),
    Family("headrace_regions_bytes", "gauge", "Bytes of these regions"),
    Family(
        "headrace_region_read_bytes_total", "counter", "Bytes of inputs copied out of regions, once"
    ),
    Family(
        "headrace_region_written_bytes_total",
        "counter",
        "Bytes of outputs copied into regions, once",
    ),
    Family(
        "headrace_region_direct_bytes_total",
        "counter",
        "Bytes of inputs and outputs that the GPU copied from and to regions, past the host",
    ),
    Family("headrace_queue_length", "gauge", "Requests admitted and not yet enqueued"),
    Family(
        "headrace_sequences",
        "gauge",
        "Sequences of a model that keeps state: active, idle ones included; waiting for a place",
    ),
    Family(
        "headrace_sequences_expired_total",
        "counter",
        "Sequences that ended because nothing was asked of them for too long",
    ),
    Family(
        "headrace_dropped_total",
        "counter",
        "Requests ended before they cost device time, by reason",
    ),
    Family(
        "headrace_access_refused_total",
        "counter",
        "Calls refused before they were read, by reason: no_token, unknown_token, restricted",
    ),
    Family("headrace_token_calls_total", "counter", "Calls with a right token, by its name"),
    Family(
        "headrace_access_reloads_total",
        "counter",
        "Files of TLS and tokens that were read again, by result: ok, or failed, which leaves the "
        "former in use",
    ),
    Family(
        "headrace_tls_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the first certificate of the server's chain, or of the roots, ends: Unix time, "
        "seconds",
    ),
    Family("headrace_poller_sweeps_total", "counter", "Sweeps of the poller over lanes in flight"),
)

CATALOGUE: Final = {family.name: family for family in _FAMILIES}


def family(name: str) -> Metric:
    """Return an empty metric from the catalogue.

    Triton's counters lack the suffix that prometheus_client gives to every counter, so they travel
    as "unknown"; `exposition.py` puts the kind right again where the format has room for it.
    """
    entry = CATALOGUE[name]
    if entry.kind == "counter" and not name.endswith("_total"):
        return Metric(name, entry.help, "unknown")
    return Metric(name.removesuffix("_total"), entry.help, entry.kind)
