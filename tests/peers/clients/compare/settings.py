"""The settings of log and trace."""

from __future__ import annotations

from outcome import CALL_S, Cases, Facts, Server
from tritonclient.grpc import service_pb2 as pb

cases = Cases()
_TRACE = ("trace_level", "trace_count", "log_frequency")


def _trace(server: Server, model: str = "", **settings: object) -> Facts:
    request = pb.TraceSettingRequest(model_name=model)
    for name, value in settings.items():
        request.settings[name].value.extend(value)
    answer = server.stub.TraceSetting(request, timeout=CALL_S)
    there = [name for name in settings or _TRACE if name in answer.settings]
    return {name: list(answer.settings[name].value) for name in there}


def _log(server: Server, **settings: object) -> Facts:
    request = pb.LogSettingsRequest()
    for name, value in settings.items():
        request.settings[name].CopyFrom(pb.LogSettingsRequest.SettingValue(**value))
    answer = server.stub.LogSettings(request, timeout=CALL_S)
    there = [name for name in settings or sorted(answer.settings) if name in answer.settings]
    values = {name: answer.settings[name] for name in there}
    return {
        name: getattr(each, each.WhichOneof("parameter_choice")) for name, each in values.items()
    }


for _what, _settings in {
    "trace settings": {},
    "trace settings: level OFF": {"trace_level": ["OFF"]},
    "trace settings: rate 100": {"trace_rate": ["100"]},
    "trace settings: rate cleared": {"trace_rate": []},
    "trace settings: a level that is none": {"trace_level": ["LOUD"]},
    "trace settings: a rate that is no number": {"trace_rate": ["often"]},
    "trace settings: a rate below 0": {"trace_rate": ["-1"]},
    "trace settings: an unknown one": {"mine": ["1"]},
    "trace settings: a file": {"trace_file": ["/tmp/headrace-compared"]},
}.items():
    cases(_what)(lambda server, settings=_settings: _trace(server, **settings))
cases("trace settings of a model")(lambda server: _trace(server, "pair"))
cases("trace settings of what is not there")(lambda server: _trace(server, "nothing"))
cases("trace settings of a model: level OFF")(
    lambda server: _trace(server, "pair", trace_level=["OFF"])
)

for _what, _settings in {
    "log settings": {},
    "log settings: no warnings": {"log_warning": {"bool_param": False}},
    "log settings: warnings again": {"log_warning": {"bool_param": True}},
    "log settings: verbose 1": {"log_verbose_level": {"uint32_param": 1}},
    "log settings: verbose 0": {"log_verbose_level": {"uint32_param": 0}},
    "log settings: a level of a wrong type": {"log_verbose_level": {"string_param": "1"}},
    "log settings: a format": {"log_format": {"string_param": "ISO8601"}},
    "log settings: the format by default": {"log_format": {"string_param": "default"}},
    "log settings: a format that is none": {"log_format": {"string_param": "mine"}},
    "log settings: an unknown one": {"mine": {"bool_param": True}},
    "log settings: a file": {"log_file": {"string_param": "/tmp/headrace-compared"}},
}.items():
    cases(_what)(lambda server, settings=_settings: _log(server, **settings))
