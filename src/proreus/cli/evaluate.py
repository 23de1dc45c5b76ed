"""``proreus evaluate``: what would the scheduler decide? Cases in, answers out, no cluster."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proreus.cli.plugin_options import load_plugins, plugin_options
from proreus.errors import ConfigError

if TYPE_CHECKING:
    from proreus.loading import LoadedPlugins
    from proreus.offline.api import JsonObject


@click.command("evaluate", short_help="Answer scheduling questions offline.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="KubeSchedulerConfiguration for the cases that bring none.",
)
@plugin_options
@click.argument(
    "cases",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    metavar="CASES.jsonl[.gz]…",
)
def command(
    config: Path | None,
    plugin: tuple[str, ...],
    plugin_dir: tuple[str, ...],
    cases: tuple[Path, ...],
) -> None:
    """Answer scheduling questions offline, with the very engine that schedules.

    A case is a line of JSON with an id, the objects of a cluster, and either a pending pod or a
    script of steps. The answers go to standard output, a line a case. Plugins given with --plugin
    are enabled in cases for which there is no configuration.
    """
    import msgspec

    from proreus.offline.evaluate import evaluate, read_cases

    # what is said of each case's configuration is no news: the answers tell
    logging.getLogger("proreus").setLevel(logging.ERROR)

    def all_cases() -> Iterator[JsonObject]:
        for path in cases:
            yield from read_cases(path)

    loaded_plugins = load_plugins(plugin, plugin_dir)
    fallback = _read(config, loaded_plugins)
    answers = evaluate(
        all_cases(), loaded_plugins.registry, fallback, loaded_plugins.default_plugins()
    )
    _write(answers, msgspec.json.encode)


def _read(config: Path | None, loaded_plugins: LoadedPlugins) -> Any:
    """Return the file's content as plain data, if it is a configuration that can be used."""
    if config is None:
        problems = loaded_plugins.problems_with(loaded_plugins.requested_names)
        if problems:
            raise ConfigError(*problems)
        return None
    from proreus.config.load import load_file
    from proreus.config.reading import read

    with loaded_plugins.attributing_errors_to_plugins():
        loaded = load_file(str(config), loaded_plugins.registry)
    if problems := loaded_plugins.problems(loaded):
        raise ConfigError(*problems)
    return read(config.read_bytes())


def _write(answers: Iterable[JsonObject], encode: Any) -> None:
    out = sys.stdout.buffer
    for answer in answers:
        out.write(encode(answer) + b"\n")
    out.flush()
