"""``proreus run`` as a subcommand, for ``--help`` and for callers of commands through click."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from proreus.process.cli.go_flags import Flag, ParsedFlags, parse_flags
from proreus.process.cli.run_flags import FLAGS


class GoCommand(click.Command):
    """A command with flags from rows of a table; its function takes one ``ParsedFlags``."""

    def __init__(
        self,
        name: str,
        flags: Sequence[Flag],
        callback: Callable[[ParsedFlags], Any],
        help_text: str,
    ) -> None:
        super().__init__(name, callback=lambda: self._call(), help=help_text)
        self._run = callback
        self._flags = {flag.name: flag for flag in flags}
        self._values = ParsedFlags(self._flags, {})

    def _call(self) -> Any:
        return self._run(self._values)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line instead of click."""
        values = parse_flags(self._flags, args, ctx.command_path)
        if values is None:
            click.echo(self.get_help(ctx))
            ctx.exit(0)
        self._values = values
        return super().parse_args(ctx, [])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags by group, as kube-scheduler's help does."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for flag in self._flags.values():
            dashes = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
            left = dashes if flag.value_when_omitted else f"{dashes} {flag.kind}"
            note = "" if flag.has_effect else " (accepted, has no effect)"
            default = f" (default {flag.default})" if flag.default not in ("", "[]") else ""
            groups.setdefault(flag.group, []).append((left, f"{flag.help}{default}{note}"))
        for title, rows in groups.items():
            with formatter.section(f"{title} flags"):
                formatter.write_dl(rows)


def _run(values: ParsedFlags) -> int:
    from proreus.process.cli.run import run  # most of proreus, which --help does not need

    return run(values)


command = GoCommand(
    "run", FLAGS, _run, "Run the scheduler (accepts kube-scheduler's flags and configuration)."
)
