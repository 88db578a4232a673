"""The settings of a front door in a test: the real ones, of a log that nobody reads."""

from __future__ import annotations

import io

from headrace.link.base import Catalog
from headrace.logging_setup import LogSwitch
from headrace.rpc.log_settings import LogState
from headrace.rpc.settings import SettingsService
from headrace.timeline.control import TimelineControl
from headrace.timeline.recorder import Bounds
from headrace.timeline.switch import TimelineSwitch


def settings_of(catalog: Catalog) -> SettingsService:
    """Settings that a server without a timeline has."""
    timeline = TimelineSwitch(None, Bounds(), clock=float)
    return SettingsService(
        catalog,
        LogSwitch(LogState(), io.StringIO()),
        TimelineControl(timeline, is_on_at_start=False),
    )
