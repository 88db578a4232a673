"""Lets clients switch the timeline, by the front door's words for it."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import UnavailableError, UnsupportedError
from headrace.rpc.trace_settings import NO_LIMIT, TraceState
from headrace.timeline.switch import TimelineSwitch


class TimelineControl:
    """What TraceSetting changes: a new rate or count begins a new recording."""

    def __init__(self, switch: TimelineSwitch, *, is_on_at_start: bool) -> None:
        self._switch = switch
        self.initial = replace(self.read(), is_on=is_on_at_start and switch.has_file)

    def read(self) -> TraceState:
        """Return what is recorded now."""
        switch = self._switch
        return TraceState(
            is_on=switch.is_recording,
            rate=switch.bounds.rate,
            count=switch.bounds.max_requests or NO_LIMIT,
            file=switch.file_name,
        )

    def change(self, state: TraceState) -> None:
        """Record that from now on.

        Raises:
            UnsupportedError: The operator named no file.
            UnavailableError: The file cannot be written; the log says why.
        """
        switch = self._switch
        if state.is_on and not switch.has_file:
            raise UnsupportedError(
                "trace_level cannot be switched on: the server was started without --timeline FILE"
            )
        count = 0 if state.count == NO_LIMIT else state.count
        bounds = replace(switch.bounds, rate=state.rate, max_requests=count)
        if not state.is_on or bounds != switch.bounds:
            switch.stop()
        switch.bounds = bounds
        if state.is_on:
            switch.start()
            if not switch.is_recording:
                raise UnavailableError("no trace can be recorded; the server's log says why")
