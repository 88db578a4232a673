"""Answers that a server keeps: `kept` has the response cache, and what statistics say of it."""

from __future__ import annotations

import numpy as np
from describe import config
from outcome import CALL_S, Cases, Facts, Server, counted, tensor, told

cases = Cases()


def _counts(server: Server) -> dict[str, int]:
    (model,) = server.client.get_inference_statistics("kept").model_stats
    stages = model.inference_stats
    return {
        "rows": model.inference_count,
        "executions": model.execution_count,
        "success": stages.success.count,
        "infer": stages.compute_infer.count,
        "hits": stages.cache_hit.count,
        "misses": stages.cache_miss.count,
    }


def _asked(server: Server, *values: float, **options: object) -> Facts:
    """What one request after the other changes in the counts, and whether each answer is right."""
    seen, right, last = [], True, _counts(server)
    for value in values:
        x = np.full((1, 4), value, np.float32)
        answer = server.client.infer(
            "kept", [tensor("x", "FP32", x)], client_timeout=CALL_S, **options
        )
        right = right and bool((answer.as_numpy("y") == x).all())
        now = counted(lambda: _counts(server), last)
        seen.append({name: now[name] - last[name] for name in now})
        last = now
    return {"counts": seen, "right": right}


@cases("cache: config")
def _config(server: Server) -> Facts:
    enabled = server.client.get_model_config("kept").config.response_cache.enable
    return {**config(server, "kept"), "enabled": enabled}


cases("cache: the same twice")(lambda server: _asked(server, 1.5, 1.5))
cases("cache: another in between")(lambda server: _asked(server, 2.5, 3.5, 2.5))


@cases("cache: another id")
def _ids(server: Server) -> Facts:
    x = [tensor("x", "FP32", np.full((1, 4), 4.5, np.float32))]
    answers = [server.client.infer("kept", x, request_id=each) for each in ("one", "two")]
    return {"answers": [told(each.get_response()) for each in answers]}


@cases("cache: of a model that has none")
def _none(server: Server) -> Facts:
    x = [tensor("x", "FP32", np.zeros((1, 4), np.float32))]
    for _ in range(2):
        server.client.infer("wishes", x)
    (model,) = server.client.get_inference_statistics("wishes").model_stats
    return {"hits": model.inference_stats.cache_hit.count}
