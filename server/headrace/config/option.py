"""One setting: its names as a flag, a variable and a TOML key, its kind, its default, its help."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from headrace.config.kinds import Boolean, Kind, Many, kind_of
from headrace.errors import ConfigError
from headrace.escape import cited


@dataclass(frozen=True)
class Declaration:
    """What a field of the configuration says about itself."""

    help: str
    flag: str = ""
    aliases: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    fix: str = ""
    default_text: str = ""
    is_argument: bool = False


def option(default: Any, help: str, **declared: Any) -> Any:  # noqa: A002 (as in --help)
    """Declare a field.

    Args:
        default: The value when no source names it.
        help: One sentence for --help and the reference.
        **declared: `flag` without dashes when it is not the field's name; `aliases`, other flags;
            `low` and `high`, inclusive bounds; `fix`, how to mend a wrong value; `default_text`,
            where the default is not a plain value; `is_argument`, positional and not a flag.
    """
    return field(default=default, metadata={"declaration": Declaration(help, **declared)})


@dataclass(frozen=True)
class Option:
    """One setting, complete."""

    name: str  # of the field
    group: str
    kind: Kind
    default: Any
    declaration: Declaration

    @property
    def key(self) -> str:
        """The name in a TOML file: the flag's, with underscores."""
        return (self.declaration.flag or self.name).replace("-", "_")

    @property
    def keys(self) -> tuple[str, ...]:
        """All names that a TOML file may use: the key, the aliases, the field's name."""
        aliases = (alias.replace("-", "_") for alias in self.declaration.aliases)
        return tuple(dict.fromkeys((self.key, *aliases, self.name)))

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return f"--{self.key.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags that are taken: written like the keys."""
        return tuple(f"--{key.replace('_', '-')}" for key in self.keys)

    @property
    def shown_flags(self) -> tuple[str, ...]:
        """Those that people are told of: the flag and the declared aliases."""
        return self.flags[: 1 + len(self.declaration.aliases)]

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return f"HEADRACE_{self.key.upper()}"

    @property
    def variables(self) -> tuple[str, ...]:
        """All names that the environment may use: written like the keys."""
        return tuple(f"HEADRACE_{key.upper()}" for key in self.keys)

    @property
    def help(self) -> str:
        """One sentence of what it does."""
        return self.declaration.help

    @property
    def default_text(self) -> str:
        """The default as --help and the reference show it."""
        return self.declaration.default_text or self.kind.show(self.default)

    @property
    def is_boolean(self) -> bool:
        """True when the flag may stand alone."""
        return isinstance(self.kind, Boolean)

    @property
    def is_repeatable(self) -> bool:
        """True when the flag may be given several times."""
        return isinstance(self.kind, Many)

    def read(self, raw: Any, *, field: str = "", path: str | None = None) -> Any:
        """Return the value of what a source gave.

        Args:
            raw: Text from the command line or the environment, or a value from TOML.
            field: What the source calls the setting; the flag by default.
            path: The file that it stands in.

        Raises:
            ConfigError: Names the setting, what came, what was expected and how to mend it.
        """
        try:
            return self.kind.read(raw)
        except (ValueError, OverflowError):
            is_secret = isinstance(self.kind, Many) and self.kind.is_secret
            came = "a value that is not shown, for it is secret" if is_secret else cited(repr(raw))
            raise self.error(
                f"got {came}, expected {self.kind.expected}", field=field, path=path
            ) from None

    def error(
        self, reason: str, *, fix: str = "", field: str = "", path: str | None = None
    ) -> ConfigError:
        """Return the error for a wrong value, with the way to mend it."""
        mend = fix or self.declaration.fix
        if not mend:
            default = self.default_text
            mend = f"leave it out for the default, {default}" if default else "leave it out"
        return ConfigError(f"{reason}; {mend}", path=path, field=field or self.flag)


def options_of(cls: type) -> tuple[Option, ...]:
    """Return the options of a configuration class, group by group in the order of its bases."""
    hints = get_type_hints(cls)
    found = []
    for base in cls.__bases__:
        for entry in fields(base):
            declaration: Declaration = entry.metadata["declaration"]
            kind = kind_of(hints[entry.name], declaration.low, declaration.high)
            group: str = vars(base)["GROUP"]
            found.append(Option(entry.name, group, kind, entry.default, declaration))
    return tuple(found)
