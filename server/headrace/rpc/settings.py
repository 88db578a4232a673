"""LogSettings and TraceSetting: what clients may change while the server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from headrace.link.base import Catalog
from headrace.rpc.log_settings import LogControl, changed_log, log_message, told
from headrace.rpc.trace_settings import TraceControl, changed_trace, trace_message
from headrace_proto.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


class SettingsService:
    """Answers on the event loop; a trace is switched in a thread, since its file is written out."""

    def __init__(self, catalog: Catalog, log_control: LogControl, trace: TraceControl) -> None:
        self._catalog = catalog
        self._log = log_control
        self._trace = trace
        self._switching = asyncio.Lock()  # one client after the other

    @property
    def methods(self) -> Mapping[str, Callable[[Any], Any]]:
        """The RPCs by name: request message in; response message, or an awaitable of it, out."""
        return {"LogSettings": self.log_settings, "TraceSetting": self.trace_setting}

    def log_settings(self, request: pb.LogSettingsRequest) -> pb.LogSettingsResponse:
        """Change what is logged, if any setting is given, and return what is logged now."""
        before = self._log.read()
        after = changed_log(request, before)
        if what := told(before, after):
            log.warning("a client changes what is logged: %s", what)  # while it can still be read
            self._log.change(after)
        return log_message(self._log.read())

    async def trace_setting(self, request: pb.TraceSettingRequest) -> pb.TraceSettingResponse:
        """Change what is recorded, if any setting is given, and return what is recorded now."""
        if request.model_name:
            self._catalog.find(request.model_name, "")
        async with self._switching:
            before = self._trace.read()
            after = changed_trace(request, before, self._trace.initial)
            if after != before:
                await asyncio.to_thread(self._trace.change, after)
            return trace_message(self._trace.read())
