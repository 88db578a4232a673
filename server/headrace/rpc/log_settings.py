"""LogSettings: what is logged, as Triton's clients read and change it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from headrace.errors import RequestError, UnsupportedError
from headrace.escape import printable
from headrace_proto.v1 import inference_pb2 as pb

FORMATS = ("default", "json")
MAX_VERBOSE = 9
# By Triton's name: the field here, the member of SettingValue, and what that is called.
FIELDS = {
    "log_info": ("info", "bool_param", "boolean"),
    "log_warning": ("warning", "bool_param", "boolean"),
    "log_error": ("error", "bool_param", "boolean"),
    "log_verbose_level": ("verbose", "uint32_param", "int32"),  # Triton's word for it
    "log_format": ("format", "string_param", "string"),
}


@dataclass(frozen=True, slots=True)
class LogState:
    """What is logged, and how.

    Attributes:
        info: Whether messages of that level are written; so `warning` and `error`.
        verbose: 0: no debug messages. 1: headrace's. More: also those of libraries.
        format: One of FORMATS.
    """

    info: bool = True
    warning: bool = True
    error: bool = True
    verbose: int = 0
    format: str = "default"


class LogControl(Protocol):
    """Changes what is logged while the server runs."""

    def read(self) -> LogState:
        """Return what is logged now."""

    def change(self, state: LogState) -> None:
        """Log that from now on."""


def changed_log(request: pb.LogSettingsRequest, state: LogState) -> LogState:
    """Return what shall be logged; every setting is checked before any takes effect.

    Raises:
        UnsupportedError: A file is named: no path comes from a client.
        RequestError: A setting is unknown, or its value is none that it may have.
    """
    changes: dict[str, Any] = {}
    for name, value in request.settings.items():
        if name == "log_file":
            _check_no_file(value)
            continue
        if name not in FIELDS:
            raise RequestError(
                f"log setting '{printable(name, 64)}' is not known; there are {', '.join(FIELDS)}"
            )
        field, member, kind = FIELDS[name]
        if value.WhichOneof("parameter_choice") != member:
            raise RequestError(f"expect {kind} for '{name}'")
        changes[field] = getattr(value, member)
    changed = replace(state, **changes)
    if changed.format not in FORMATS:
        raise RequestError(
            f"invalid argument for log_format, got: {printable(changed.format, 64)}; expected one "
            f"of {', '.join(FORMATS)} (times are in ISO 8601 in both)"
        )
    if changed.verbose > MAX_VERBOSE:
        raise RequestError(f"log_verbose_level is {changed.verbose}, expected 0 to {MAX_VERBOSE}")
    return changed


def log_message(state: LogState) -> pb.LogSettingsResponse:
    """Return all settings; the log goes to standard error, which Triton calls no file."""
    reply = pb.LogSettingsResponse()
    reply.settings["log_file"].string_param = ""
    values = asdict(state)
    for name, (field, member, _) in FIELDS.items():
        setattr(reply.settings[name], member, values[field])
    return reply


def told(before: LogState, after: LogState) -> str:
    """Say what has changed, for the log; "" when nothing has."""
    old, new = asdict(before), asdict(after)
    return ", ".join(
        f"{name} {old[field]} → {new[field]}"
        for name, (field, _, _) in FIELDS.items()
        if old[field] != new[field]
    )


def _check_no_file(value: pb.LogSettingsRequest.SettingValue) -> None:
    if value.WhichOneof("parameter_choice") != "string_param" or value.string_param:
        raise UnsupportedError(
            "log file location can not be updated through network protocol: the log goes to "
            "standard error, and the operator decides where that leads"
        )
