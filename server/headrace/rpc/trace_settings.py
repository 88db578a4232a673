"""TraceSetting: what is recorded of requests, as Triton's clients read and change it.

A trace here is a timeline, recorded into the file that the operator named at the start. Its level
is OFF or TIMESTAMPS; a new rate or count begins a new file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headrace.errors import RequestError, UnsupportedError
from headrace.escape import printable
from headrace_proto.v1 import inference_pb2 as pb

NO_LIMIT = -1  # of the count, as Triton writes it
MAX_NUMBER = 1_000_000_000
OFF, TIMESTAMPS = "OFF", "TIMESTAMPS"
KNOWN = ("trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file")


@dataclass(frozen=True, slots=True)
class TraceState:
    """What is recorded.

    Attributes:
        is_on: Whether anything is.
        rate: Every so many-th request.
        count: So many requests, then the recording ends; NO_LIMIT for those that fit.
        file: The name of the file, without its folder; "" where the operator named none.
    """

    is_on: bool
    rate: int
    count: int = NO_LIMIT
    file: str = ""


class TraceControl(Protocol):
    """Changes what is recorded while the server runs."""

    @property
    def initial(self) -> TraceState:
        """What the operator chose at the start."""

    def read(self) -> TraceState:
        """Return what is recorded now."""

    def change(self, state: TraceState) -> None:
        """Record that from now on; takes a moment, and may be called from any thread.

        Raises:
            HeadraceError: It cannot be.
        """


def changed_trace(
    request: pb.TraceSettingRequest, state: TraceState, initial: TraceState
) -> TraceState:
    """Return what shall be recorded; every setting is checked before any takes effect.

    A setting without a value goes back to what it was at the start.

    Raises:
        UnsupportedError: A file is named, a level that would write tensors, or settings of one
            model alone.
        RequestError: A setting is unknown, or its value is none that it may have.
    """
    if request.model_name and any(each.value for each in request.settings.values()):
        raise UnsupportedError(
            "trace settings of a single model are not offered: leave the model's name out to set "
            "them for all"
        )
    for name, setting in request.settings.items():
        values = list(setting.value)
        if name == "trace_level":
            state = replace(state, is_on=_is_on(values) if values else initial.is_on)
        elif name == "trace_rate":
            state = replace(state, rate=_number(name, values, 1) if values else initial.rate)
        elif name == "trace_count":
            state = replace(state, count=_count(values) if values else initial.count)
        else:
            _check_fixed(name, values)
    return state


def trace_message(state: TraceState) -> pb.TraceSettingResponse:
    """Return all settings."""
    reply = pb.TraceSettingResponse()
    for name, value in (
        ("trace_level", TIMESTAMPS if state.is_on else OFF),
        ("trace_rate", str(state.rate)),
        ("trace_count", str(state.count)),
        ("log_frequency", "0"),  # one file for each recording
        ("trace_file", state.file),
    ):
        reply.settings[name].value.append(value)
    return reply


def _is_on(values: Sequence[str]) -> bool:
    if list(values) == [OFF]:
        return False
    if set(values) == {TIMESTAMPS}:
        return True
    if "TENSORS" in values:
        raise UnsupportedError(
            "trace_level TENSORS is not offered: what clients send is never written to a file"
        )
    raise RequestError(f"trace_level is {_shown(values)}, expected {OFF} or {TIMESTAMPS}")


def _count(values: Sequence[str]) -> int:
    return NO_LIMIT if list(values) == [str(NO_LIMIT)] else _number("trace_count", values, 1)


def _number(name: str, values: Sequence[str], least: int) -> int:
    if len(values) != 1:
        raise RequestError(f"expect only 1 value for '{name}', got {len(values)}")
    text = values[0]
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_NUMBER)):
        number = int(text)
        if least <= number <= MAX_NUMBER:
            return number
    raise RequestError(
        f"Unable to parse '{name}', got: {_shown(values)}; expected {least} to {MAX_NUMBER}"
    )


def _check_fixed(name: str, values: Sequence[str]) -> None:
    """Refuse what cannot be changed, unless it asks for what there is."""
    if name == "trace_file":
        raise UnsupportedError(
            "trace file location can not be updated through network protocol: the operator names "
            "it with --timeline at the start"
        )
    if name != "log_frequency":
        raise RequestError(
            f"trace setting '{printable(name, 64)}' is not known; there are {', '.join(KNOWN)}"
        )
    if list(values) not in ([], ["0"]):
        raise UnsupportedError(
            f"log_frequency is {_shown(values)}; only 0, one file for each recording, is offered"
        )


def _shown(values: Sequence[str]) -> str:
    return ", ".join(printable(value, 64) for value in values[:4]) or "nothing"
