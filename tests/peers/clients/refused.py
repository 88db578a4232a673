"""How calls of tritonclient are refused; for the scripts beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tritonclient.grpc as triton


def refused(calls: Mapping[str, Callable[[], object]]) -> dict[str, list[str]]:
    """What was wrong → [status, text], of the calls that were refused."""
    seen = {}
    for what, call in calls.items():
        try:
            call()
        except triton.InferenceServerException as error:
            seen[what] = [str(error.status()), str(error.message())]
    return seen
