"""Whether the figures are the server's, or the client was the limit: pure, from figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

BUSY_SHARE = 0.9  # an event loop that is this busy has no time to send or to read in time
LATE_SHARE = 0.1  # of the latency's p99; a lag below that changes no conclusion
LATE_S = 0.001
FULL_SHARE = 0.95  # of all cores


@dataclass(frozen=True)
class ClientUse:
    """What the client took of its machine.

    Attributes:
        loop_shares: Of each process, how much of the time its event loop was on the CPU, 0 to 1.
        cpu_cores: Cores that all processes used together, with gRPC's own threads.
        machine_share: How busy all cores of this machine were, whoever used them; None: unknown.
        is_local: The server is on the same machine.
    """

    loop_shares: tuple[float, ...]
    cpu_cores: float
    machine_share: float | None
    is_local: bool


@dataclass(frozen=True)
class Verdict:
    """What the client has to do with the figures.

    Attributes:
        client_was_limit: It could not send more, so the rates are its own and not the server's.
        client_was_late: A part of the latencies that matters is its own.
        text: A sentence or two, for the report.
    """

    client_was_limit: bool
    client_was_late: bool
    text: str

    @property
    def word(self) -> str:
        """The same in a word, for a table."""
        return "limit" if self.client_was_limit else "late" if self.client_was_late else "ok"


def judge(use: ClientUse, lag_p99_s: float, latency_p99_s: float, num_dropped: int) -> Verdict:
    """Judge a level.

    Args:
        use: What the client took.
        lag_p99_s: How late requests were sent, or event loops ran; NaN: not measured.
        latency_p99_s: Of the answers; NaN: there were none.
        num_dropped: Requests that were due and not sent.
    """
    busiest = max(use.loop_shares, default=0.0)
    limits = []
    if num_dropped:
        limits.append(
            f"{num_dropped:,} requests were due and not sent, because too many were in flight "
            "(--max-in-flight) or the client was over a second late"
        )
    if busiest >= BUSY_SHARE:
        limits.append(f"an event loop was busy {busiest:.0%} of the time; take more --processes")
    is_full = use.machine_share is not None and use.machine_share >= FULL_SHARE
    if is_full and not use.is_local:
        limits.append(f"the cores of this machine were {use.machine_share:.0%} busy")
    bound_s = max(LATE_S, LATE_SHARE * latency_p99_s if latency_p99_s > 0 else 0.0)
    is_late = lag_p99_s > bound_s
    busy = f"its event loops were busy at most {busiest:.0%} of the time"
    if limits:
        text = f"The client was the limit: {'; '.join(limits)}."
    elif is_late:
        text = f"The client was late by {_ms(lag_p99_s)} (p99), which is in the latencies; {busy}."
    else:
        text = f"The client was not the limit: {busy}, and it was late by {_ms(lag_p99_s)} (p99)."
    if is_full and use.is_local:
        text += (
            " Client and server share this machine, whose cores were "
            f"{use.machine_share:.0%} busy: they took time from each other."
        )
    return Verdict(bool(limits), is_late, text)


def _ms(seconds: float) -> str:
    if math.isnan(seconds):
        return "?"
    return f"{seconds * 1e3:,.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.2g} ms"
