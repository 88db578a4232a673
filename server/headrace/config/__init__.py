"""Every setting of the server: declared once, read from flags, environment and a TOML file."""

from __future__ import annotations

from headrace.config.option import Option
from headrace.config.server import OPTIONS, ServerConfig
from headrace.config.sources import load, unknown_variables

__all__ = ["OPTIONS", "Option", "ServerConfig", "load", "unknown_variables"]
