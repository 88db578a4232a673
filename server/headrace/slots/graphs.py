"""CUDA graphs: the compute of one (lane, layout), captured once and then launched in one call.

Rules
- Copies stay outside: they lead to a batch's own blocks.
- A graph has the addresses of its lane baked in, so it belongs to a binding and goes with it.
- A layout is captured only when it ran plainly on this lane and was the last that the slot's
  context ran (an engine sets itself up then, which cannot be captured), only while the slot's
  stream is idle, and one at a time: by the thread that steps the core.
- What cannot be captured runs as ever; each such run is counted with its reason.
- There is a bound a lane: the graph that was launched longest ago makes room, and the more often
  that happens, the more runs a new layout must show before it is captured.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal, get_args

from headrace.device.base import CapturableStream, Graph
from headrace.engines.base import Binding, Layout
from headrace.errors import DeviceError, EngineError

log = logging.getLogger(__name__)

MissReason = Literal["new", "busy", "cold", "refused", "host"]
"""Why a batch ran without a graph: its layout is new on this lane; it could have been captured, but
the stream had work, or the context last ran another layout; its capture failed; the host reads or
computes something at each enqueue."""

Obstacle = Callable[[Layout], MissReason | None]

MAX_PER_LANE: Final = 16
"""Each graph keeps memory of the device, and clients choose the shapes."""

PLAIN_RUNS: Final = 2
"""Runs that a layout must show on a lane: one sets the engine up, one more says that it is used."""

MAX_DAMPING: Final = 10

MAX_REFUSALS: Final = 8
"""So many failed captures of one model on end, and none is tried any more: neither the time nor the
log shall go to an engine that cannot be captured, whatever shapes come."""


class GraphTally:
    """What the graphs of one model did, over all its lanes."""

    def __init__(self) -> None:
        self.num_hits = 0
        self.num_misses: dict[MissReason, int] = dict.fromkeys(get_args(MissReason), 0)
        self.num_captured = 0  # and not given up
        self.num_refusals = 0  # on end

    def restart(self) -> None:
        """Count hits and misses anew, after warm-up."""
        self.num_hits = 0
        self.num_misses.update(dict.fromkeys(self.num_misses, 0))


class LaneGraphs:
    """The graphs of one lane.

    Args:
        stream: The slot's.
        tally: The model's.
        obstacle: Says what of the slot stands against a capture now.
        max_graphs: More than these are never kept.
    """

    def __init__(
        self,
        stream: CapturableStream,
        tally: GraphTally,
        obstacle: Obstacle,
        *,
        max_graphs: int = MAX_PER_LANE,
    ) -> None:
        self._stream = stream
        self._tally = tally
        self._obstacle = obstacle
        self._max_graphs = max_graphs
        self._graphs: OrderedDict[Binding, Graph] = OrderedDict()  # launched longest ago first
        self._num_runs: dict[Binding, int] = {}  # plain ones, of bindings without a graph
        self._refused: set[Binding] = set()
        self.num_evicted = 0

    def pick(self, binding: Binding, work: Callable[[], None]) -> Graph | None:
        """Return the graph to launch for a binding, None to run `work` plainly.

        Args:
            binding: One of this lane's.
            work: Its compute; captured here when its time has come.

        Raises:
            DeviceError: The device is dead.
        """
        graph = self._graphs.get(binding)
        if graph is not None:
            self._graphs.move_to_end(binding)
            self._tally.num_hits += 1
            return graph
        reason = self._why_not(binding)
        if reason is None:
            graph = self._capture(binding, work)
            if graph is not None:
                self._tally.num_hits += 1
                return graph
            reason = "refused"
        self._tally.num_misses[reason] += 1
        return None

    def has(self, binding: Binding) -> bool:
        """Say whether there is a graph for a binding."""
        return binding in self._graphs

    def give_up(self) -> None:
        """Drop all graphs, and let no lane of the model capture any more."""
        for binding in list(self._graphs):
            self.forget(binding)
        self._tally.num_refusals = MAX_REFUSALS

    def forget(self, binding: Binding) -> None:
        """Drop what is known of a binding that goes; nothing of this lane may be in flight."""
        self._num_runs.pop(binding, None)
        self._refused.discard(binding)
        graph = self._graphs.pop(binding, None)
        if graph is not None:
            self._tally.num_captured -= 1
            graph.close()

    def close(self) -> None:
        """Drop everything; the stream must be idle. A second call does nothing."""
        for binding in list(self._graphs):
            self.forget(binding)
        self._num_runs.clear()
        self._refused.clear()

    def _why_not(self, binding: Binding) -> MissReason | None:
        """Say what stands against a capture now."""
        if binding in self._refused or self._tally.num_refusals >= MAX_REFUSALS:
            return "refused"
        if binding.reads_host:
            return "host"
        num_runs = self._num_runs.get(binding, 0)
        if num_runs < PLAIN_RUNS << min(self.num_evicted, MAX_DAMPING):
            self._num_runs[binding] = num_runs + 1
            return "new"
        return self._obstacle(binding.layout)

    def _capture(self, binding: Binding, work: Callable[[], None]) -> Graph | None:
        if len(self._graphs) >= self._max_graphs:
            self.forget(next(iter(self._graphs)))
            self.num_evicted += 1
        del self._num_runs[binding]
        try:
            graph = self._stream.capture(work)
        except (EngineError, DeviceError) as error:
            if isinstance(error, DeviceError) and error.sticky:
                raise
            self._refused.add(binding)
            self._tally.num_refusals += 1
            shapes = [list(shape) for shape in binding.layout.input_shapes]
            log.warning("inputs of shapes %s run without a CUDA graph: %s", shapes, str(error))
            if self._tally.num_refusals == MAX_REFUSALS:
                log.warning("no more CUDA graphs are tried: %d failed on end", MAX_REFUSALS)
            return None
        self._tally.num_refusals = 0
        self._graphs[binding] = graph
        self._tally.num_captured += 1
        return graph
