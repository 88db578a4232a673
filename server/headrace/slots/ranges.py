"""NVTX ranges around what a slot enqueues, under the names of the timeline's spans.

For Nsight Systems, which draws the GPU's work below the range that enqueued it. Where the package
`nvtx` is not installed nothing is changed; where it is and no profiler looks, a range costs a tenth
of a microsecond. The only file that imports nvtx.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from headrace.device.base import Stream

DOMAIN: Final = "headrace"
NAMES: Final = {"copy_h2d": "h2d", "launch": "execute", "copy_d2h": "d2h"}  # by method of a stream


@functools.cache
def _domain() -> Any:
    """Return the domain of our ranges; None without the package."""
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx.get_domain(DOMAIN)


def name_ranges(stream: Stream) -> None:
    """Put a range around each of the stream's enqueueing calls, for as long as it lives."""
    domain = _domain()
    if domain is not None:
        for method, name in NAMES.items():
            setattr(stream, method, _ranged(domain, name, getattr(stream, method)))


def _ranged(domain: Any, name: str, call: Callable[..., None]) -> Callable[..., None]:
    attributes = domain.get_event_attributes(message=name)
    push, pop = domain.push_range, domain.pop_range

    def ranged(*args: Any) -> None:
        push(attributes)
        try:
            call(*args)
        finally:
            pop()

    return ranged
