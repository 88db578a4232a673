"""Wrong LogSettings and TraceSetting, with their statuses: the server has no --timeline."""

from __future__ import annotations

from collections.abc import Sequence

from tritonclient.grpc import service_pb2 as pb

from helpers.bad_request import INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, Bad

Value = bool | int | str | None

_LOG: tuple[tuple[str, Value, int, str], ...] = (
    ("log_file", "/etc/passwd", UNIMPLEMENTED, "log file location can not be updated"),
    ("log_file", True, UNIMPLEMENTED, "log file location can not be updated"),
    ("log_file", None, UNIMPLEMENTED, "log file location can not be updated"),
    ("log_info", 1, INVALID_ARGUMENT, "expect boolean for 'log_info'"),
    ("log_error", "true", INVALID_ARGUMENT, "expect boolean for 'log_error'"),
    ("log_warning", None, INVALID_ARGUMENT, "expect boolean for 'log_warning'"),
    ("log_verbose_level", True, INVALID_ARGUMENT, "expect int32 for 'log_verbose_level'"),
    ("log_verbose_level", 10, INVALID_ARGUMENT, "log_verbose_level is 10, expected 0 to 9"),
    ("log_verbose_level", 2**32 - 1, INVALID_ARGUMENT, "expected 0 to 9"),
    ("log_format", "ISO8601", INVALID_ARGUMENT, "got: ISO8601; expected one of default, json"),
    ("log_format", "a\nb", INVALID_ARGUMENT, r"got: a\nb"),
    ("log_format", 1, INVALID_ARGUMENT, "expect string for 'log_format'"),
    ("log_colour", True, INVALID_ARGUMENT, "log setting 'log_colour' is not known"),
    ("x" * 5000, True, INVALID_ARGUMENT, "4936 more characters"),
)

_TRACE: tuple[tuple[str, Sequence[str], int, str], ...] = (
    ("trace_file", ["/etc/passwd"], UNIMPLEMENTED, "trace file location can not be updated"),
    ("trace_file", [], UNIMPLEMENTED, "trace file location can not be updated"),
    ("trace_level", ["TENSORS"], UNIMPLEMENTED, "TENSORS is not offered"),
    ("trace_level", ["TIMESTAMPS", "TENSORS"], UNIMPLEMENTED, "TENSORS is not offered"),
    ("trace_level", ["TIMESTAMPS"], UNIMPLEMENTED, "started without --timeline FILE"),
    ("trace_level", ["loud\x1b"], INVALID_ARGUMENT, r"trace_level is loud\x1b, expected OFF or"),
    ("trace_level", ["OFF", "TIMESTAMPS"], INVALID_ARGUMENT, "trace_level is OFF, TIMESTAMPS"),
    ("trace_rate", ["0"], INVALID_ARGUMENT, "Unable to parse 'trace_rate', got: 0; expected 1"),
    ("trace_rate", ["-5"], INVALID_ARGUMENT, "got: -5"),
    ("trace_rate", ["9" * 5000], INVALID_ARGUMENT, "Unable to parse 'trace_rate'"),
    ("trace_rate", ["١"], INVALID_ARGUMENT, "Unable to parse 'trace_rate'"),
    ("trace_rate", ["1", "2"], INVALID_ARGUMENT, "expect only 1 value for 'trace_rate', got 2"),
    ("trace_count", ["0"], INVALID_ARGUMENT, "Unable to parse 'trace_count', got: 0"),
    ("trace_count", ["-2"], INVALID_ARGUMENT, "got: -2"),
    ("log_frequency", ["5"], UNIMPLEMENTED, "log_frequency is 5; only 0"),
    ("trace_mode", ["opentelemetry"], INVALID_ARGUMENT, "trace setting 'trace_mode' is not known"),
)


def log_settings(**settings: Value) -> bytes:
    """A LogSettingsRequest on the wire; None is a setting without a value."""
    request = pb.LogSettingsRequest()
    for name, value in settings.items():
        setting = request.settings[name]
        if isinstance(value, bool):
            setting.bool_param = value
        elif isinstance(value, int):
            setting.uint32_param = value
        elif isinstance(value, str):
            setting.string_param = value
    serialized: bytes = request.SerializeToString()
    return serialized


def trace_settings(model: str = "", /, **settings: Sequence[str]) -> bytes:
    """A TraceSettingRequest on the wire."""
    request = pb.TraceSettingRequest(model_name=model)
    for name, values in settings.items():
        request.settings[name].value.extend(values)
    serialized: bytes = request.SerializeToString()
    return serialized


def wrong_settings() -> list[Bad]:
    """Each with its status."""
    one = "settings of a single model"
    return [
        *(
            Bad(f"{name[:20]} {value!r}", code, text, log_settings(**{name: value}), "LogSettings")
            for name, value, code, text in _LOG
        ),
        *(
            Bad(
                f"{name} {', '.join(values)[:20]!r}",
                code,
                text,
                trace_settings(**{name: values}),
                "TraceSetting",
            )
            for name, values, code, text in _TRACE
        ),
        Bad(
            "trace of a model",
            UNIMPLEMENTED,
            one,
            trace_settings("pair", trace_rate=["5"]),
            "TraceSetting",
        ),
        Bad("trace of no model", NOT_FOUND, "'nothing'", trace_settings("nothing"), "TraceSetting"),
    ]
