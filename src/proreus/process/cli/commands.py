"""The group of all subcommands; each subcommand is a module of its own.

Subcommand modules import what they run inside their functions, so that ``proreus --help`` and the
error for a mistyped flag appear at once.
"""

from __future__ import annotations

import importlib

import click

import proreus
from proreus.base.errors import ProreusError, explained
from proreus.base.similar_names import similar
from proreus.process.outer_rooms import COMMANDS, registered

_COMMANDS = {
    "run": "proreus.process.cli.run_command",
    "explain": "proreus.process.cli.explain",
    "why": "proreus.process.cli.explain.why",
    "plugins": "proreus.process.cli.plugins",
    "new-plugin": "proreus.process.cli.new_plugin",
    "example": "proreus.process.cli.example",
    "crds": "proreus.process.cli.crds",
    "chart": "proreus.process.cli.chart",
    "version": "proreus.process.cli.version",
}
"""Module with the ``command`` of each subcommand of the core, in the order of the help text."""


class _Group(click.Group):
    """Imports the module of a subcommand only when that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *registered(COMMANDS)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # A start does not read the entry points of a command that is there.
        unknown = self.get_command(ctx, args[0]) is None
        if unknown and (meant := similar(args[0], self.list_commands(ctx))):
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{meant}'?", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if module := _COMMANDS.get(cmd_name):
            command: click.Command = importlib.import_module(module).command
            return command
        found = registered(COMMANDS).get(cmd_name)
        return None if found is None else found.load()


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(proreus.__version__, message="proreus v%(version)s")
def proreus_command() -> None:
    """Schedule pods as kube-scheduler does, several times as fast, with plugins in Python."""


def call(command: click.Group, arguments: list[str] | None, name: str) -> int:
    """Run a command that is called ``name``, and return its exit code."""
    try:
        code = command.main(arguments, prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    except ProreusError as error:
        click.echo(f"Error: {explained(error)}", err=True)
        code = 1
    return code if isinstance(code, int) else 0
