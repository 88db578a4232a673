"""Requests whose tensors lie in regions, made and submitted as the front door does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.regions.part import RegionPart
from headrace.regions.table import RegionTable
from headrace.scheduling.region_request import RegionRequest

if TYPE_CHECKING:
    from headrace.engines.base import Layout
    from headrace.scheduling.line import Line
    from headrace.scheduling.request import Buffer, Request
    from headrace.slots.batch import Output
    from helpers.core_rig import Rig

SIZE = 5000
IN, OUT = RegionPart("in", 0, SIZE), RegionPart("out", 0, SIZE)

OnEnd = Callable[["Request", "Sequence[Output] | None", "Exception | None"], None]


def region_request(
    table: RegionTable,
    wanted: Mapping[int, RegionPart],
    line: Line,
    layout: Layout,
    source: Buffer | RegionPart,
    *,
    now: float,
    on_end: OnEnd,
) -> RegionRequest:
    """A request of one row and one input, without a deadline."""
    times: dict[str, Any] = {"deadline": None, "received_at": now, "parsed_at": now}
    return RegionRequest(table, wanted, line, layout, (source,), rows=1, on_end=on_end, **times)


class RegionRig:
    """The core on the virtual device, and requests from one region of a table into another.

    Attributes:
        ends: The answer to each request, or its error, in the order of their ends.
    """

    def __init__(self, rig: Rig, table: RegionTable) -> None:
        self.rig = rig
        self.table = table
        self.ends: list[bytes | Exception] = []

    def request(
        self,
        source: Buffer | RegionPart = IN,
        wanted: RegionPart | None = OUT,
        *,
        layout: Layout | None = None,
    ) -> RegionRequest:
        """One that is not submitted yet."""

        def on_end(_: Request, outputs: Sequence[Output] | None, error: Exception | None) -> None:
            self.ends.append(error or bytes((outputs or [((), b"")])[0][1]))

        return region_request(
            self.table,
            {} if wanted is None else {0: wanted},
            self.rig.line,
            layout or self.rig.layout(len(source)),
            source,
            now=self.rig.clock(),
            on_end=on_end,
        )

    def submit(self, *args: RegionPart | bytes | None) -> RegionRequest:
        """One more request; who refuses it has let go of its regions."""
        request = self.request(*args)  # type: ignore[arg-type]
        try:
            self.rig.scheduler.submit(request, self.rig.clock())
        except HeadraceError:
            request.let_go()
            raise
        return request

    def num_held(self, kind: str) -> int:
        """How much of a kind the device has open."""
        return sum(name.startswith(kind) for name in self.rig.device.leaks())
