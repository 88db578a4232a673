"""Makes the flags of `headrace serve` out of the declared settings, and groups them in --help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import click

from headrace.config import OPTIONS, Option
from headrace.config.kinds import FALSE_WORDS, TRUE_WORDS


class Setting(click.Option):
    """A flag of a declared setting. Values stay text: `headrace.config` reads and judges them."""

    def __init__(self, option: Option) -> None:
        default = f"  [default: {option.default_text}]" if option.default_text else ""
        super().__init__(
            [option.name, *option.flags],
            metavar=option.kind.metavar,
            help=option.help,
            multiple=option.is_repeatable,
            type=str,
        )
        self.group = option.group
        flags = ", ".join(option.shown_flags)
        self._help_record = f"{flags} {option.kind.metavar}", f"{option.help}{default}"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:  # noqa: ARG002 (click's)
        """Return the line of --help: the flags that people are told of, and the default."""
        return self._help_record


class SettingsCommand(click.Command):
    """A command whose switches may stand alone and whose --help is in sections."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give every switch that stands alone its value, then let click parse."""
        return super().parse_args(ctx, spell_out(args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each group of settings, and one for the rest."""
        settings = [param for param in self.get_params(ctx) if isinstance(param, Setting)]
        for group, members in groupby(settings, key=lambda setting: setting.group):
            _section(group, members, ctx, formatter)
        others = [
            param
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and not isinstance(param, Setting)
        ]
        _section("Other", others, ctx, formatter)


def settings() -> list[click.Parameter]:
    """Return the flags of all declared settings."""
    return [Setting(option) for option in OPTIONS if not option.declaration.is_argument]


def spell_out(args: Sequence[str]) -> list[str]:
    """Return the arguments with `--switch` and `--switch word` written as `--switch=word`.

    Triton takes the two forms with a word; people expect the one without. What follows a lone
    switch may be a model file, so only a word that means true or false is taken as its value.
    """
    switches = {flag for option in OPTIONS if option.is_boolean for flag in option.flags}
    words = TRUE_WORDS | FALSE_WORDS
    spelled: list[str] = []
    waiting = list(reversed(args))
    while waiting:
        arg = waiting.pop()
        if arg == "--":
            return [*spelled, arg, *reversed(waiting)]
        if arg in switches:
            is_given = bool(waiting) and waiting[-1].lower() in words
            arg = f"{arg}={waiting.pop() if is_given else 'true'}"
        spelled.append(arg)
    return spelled


def _section(
    title: str, params: Iterable[Any], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    records = [record for param in params if (record := param.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)
