"""Puts a configuration together: a flag wins over the environment, that over the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from headrace.config.kinds import File, Many
from headrace.config.option import Option
from headrace.config.server import OPTIONS, ServerConfig
from headrace.errors import ConfigError

CONFIG_VARIABLE: Final = "HEADRACE_CONFIG"
CLIENT_VARIABLES: Final = frozenset({"HEADRACE_URL"})
"""Of `headrace-client`, and no settings of the server."""
_SERVICE_LINK: Final = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_\d+_(TCP|UDP)|$)")
"""In variables that Kubernetes sets for Services; those are nobody's mistake."""


def load(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    config_file: Path | None = None,
    model_files: Sequence[Path] = (),
) -> ServerConfig:
    """Return the configuration of these sources.

    Args:
        flags: What the command line gave, by name of the field: text, or a sequence of texts.
        environment: Such as `os.environ`.
        config_file: A TOML file; else the one that HEADRACE_CONFIG names, if any.
        model_files: The command line's positional arguments.

    Raises:
        ConfigError: Names the flag, variable or key that is wrong, and how to mend it.
    """
    if config_file is None and environment.get(CONFIG_VARIABLE):
        config_file = Path(environment[CONFIG_VARIABLE]).expanduser()
    values = {} if config_file is None else read_file(config_file)
    for option in OPTIONS:
        if option.declaration.is_argument:
            continue
        given = flags.get(option.name)
        variable = next((name for name in option.variables if name in environment), None)
        if given is not None and given != ():
            values[option.name] = option.read(given)
        elif variable is not None:
            values[option.name] = _read_variable(option, variable, environment[variable])
    if model_files:
        values["model_files"] = tuple(model_files)
    return ServerConfig(**values)


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence on each HEADRACE_ variable that is no setting: a misspelt one, perhaps."""
    known = (
        {name for option in OPTIONS for name in option.variables}
        | {CONFIG_VARIABLE}
        | CLIENT_VARIABLES
    )
    for name in sorted(environment):
        if name.startswith("HEADRACE_") and name not in known and not _SERVICE_LINK.search(name):
            by_key = {each.removeprefix("HEADRACE_"): each for each in known}
            near = get_close_matches(name.removeprefix("HEADRACE_"), by_key, n=1)
            hint = f"; did you mean {by_key[near[0]]}?" if near else ""
            yield f"{name} is no setting and is ignored{hint}"


def read_file(path: Path) -> dict[str, Any]:
    """Return a TOML file's values by name of the field; relative paths start at its folder.

    Raises:
        ConfigError: Names the file and the key.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}; name an existing file with --config or "
            f"{CONFIG_VARIABLE}",
            path=str(path),
        ) from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise ConfigError(f"is not TOML: {error}; mend it there", path=str(path)) from error
    by_key = {key: option for option in OPTIONS for key in option.keys}
    values: dict[str, Any] = {}
    for written, raw in document.items():
        key = written.replace("-", "_")
        option = by_key.get(key)
        if option is None:
            raise ConfigError(_unknown(written, list(by_key)), path=str(path), field=written)
        value = option.read(raw, field=written, path=str(path))
        values[option.name] = _from_folder(option, value, path.parent)
    return values


def _unknown(written: str, keys: list[str]) -> str:
    near = get_close_matches(written.replace("-", "_"), keys, n=1)
    hint = f"did you mean {near[0]}?" if near else "`headrace serve --help` lists them"
    return f"is no setting; {hint} Keys are flags without dashes in front, all on the top level"


def _from_folder(option: Option, value: Any, folder: Path) -> Any:
    if isinstance(option.kind, File):
        return folder / value
    if isinstance(option.kind, Many) and isinstance(option.kind.item, File):
        return tuple(folder / item for item in value)
    return value


def _read_variable(option: Option, variable: str, text: str) -> Any:
    try:
        return option.read(text, field=variable)
    except ConfigError as error:
        if "://" not in text:
            raise
        raise ConfigError(
            f"{error.reason} (Kubernetes sets such variables for Services whose names begin with "
            "headrace; enableServiceLinks: false in the pod's spec stops it)",
            field=variable,
        ) from None
