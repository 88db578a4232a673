"""What a front door answers in a test: the real services, of a log that nobody reads."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

from headrace.link.base import Catalog
from headrace.logging_setup import LogSwitch
from headrace.rpc.admin import AdminService
from headrace.rpc.log_settings import LogState
from headrace.rpc.repository import RepositoryService
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


def answers_of(
    catalog: Catalog, *, is_stopping: Callable[[], bool] = bool
) -> Mapping[str, Callable[[Any], Any]]:
    """Every unary RPC but ModelInfer, of a server whose models stay."""
    return {
        **AdminService(catalog, server_id="s", is_stopping=is_stopping).methods,
        **settings_of(catalog).methods,
        **RepositoryService(catalog, None, mode="none").methods,
    }
