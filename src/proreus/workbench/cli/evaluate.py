"""``proreus evaluate`` prints the scheduler's decisions for recorded cases, without a cluster."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proreus.base.errors import ConfigError, ProreusError
from proreus.base.feature_gates import FeatureGates
from proreus.base.known_faults import parse_corrections
from proreus.base.kubernetes_version import (
    SUPPORTED_VERSIONS,
    KubernetesVersion,
    parse_emulated_version,
)
from proreus.process.cli.documented_options import documented_options
from proreus.process.cli.plugin_options import load_plugins, plugin_options

if TYPE_CHECKING:
    from proreus.offline.api import JsonObject
    from proreus.process.loading.loaded_plugins import LoadedPlugins


@click.command("evaluate", short_help="Evaluate scheduling cases offline.")
@documented_options
@plugin_options
@click.argument(
    "cases",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    metavar="CASES.jsonl[.gz]…",
)
def command(
    *,
    config: Path | None = None,
    emulated_version: str = str(SUPPORTED_VERSIONS[0]),
    corrections: str = "",
    plugin: tuple[str, ...],
    plugin_dir: tuple[str, ...],
    cases: tuple[Path, ...],
) -> int:
    """Evaluate scheduling cases offline, with the engine of `proreus run`.

    A case is a line of JSON with an id, the objects of a cluster, and either a pending pod or a
    script of steps. Results are written to standard output, a line a case. A line that is no case
    is reported on standard error, and the exit code is 1 then. Plugins given with --plugin are
    enabled in cases without a configuration. examples/evaluate has cases to try.

    --config
        KubeSchedulerConfiguration for cases without one.
    --emulated-version VERSION
        Kubernetes version for cases that state none. [default]
    --corrections NAME,...
        Faults of kube-scheduler to correct, as of proreus run.
    """
    import msgspec

    from proreus.offline.evaluate import Fallbacks, evaluate, read_cases

    # Warnings about a case's configuration would be repeated for each case; its result has them.
    logging.getLogger("proreus").setLevel(logging.ERROR)

    unusable: list[ProreusError] = []

    def report(error: ProreusError) -> None:
        unusable.append(error)
        click.echo(f"Error: {error}", err=True)

    def all_cases() -> Iterator[JsonObject]:
        for path in cases:
            yield from read_cases(path, report)

    loaded_plugins = load_plugins(plugin, plugin_dir)
    version = parse_emulated_version(emulated_version.removeprefix("kube="), "--emulated-version")
    fallbacks = Fallbacks(
        _read(config, loaded_plugins, version),
        loaded_plugins.default_plugins(),
        version,
        parse_corrections(corrections.split(",")),
    )
    results = evaluate(all_cases(), loaded_plugins.registry, fallbacks)
    _write(results, msgspec.json.encode)
    return 1 if unusable else 0


def _read(config: Path | None, loaded_plugins: LoadedPlugins, version: KubernetesVersion) -> Any:
    """Return the file's content as plain data; raises ``ConfigError`` if it is invalid."""
    if config is None:
        problems = loaded_plugins.problems_with(loaded_plugins.requested_names)
        if problems:
            raise ConfigError(*problems)
        return None
    from proreus.config.load import load_file
    from proreus.config.reading import read

    with loaded_plugins.attributing_errors_to_plugins():
        loaded = load_file(
            str(config), loaded_plugins.registry, FeatureGates(emulation_version=version)
        )
    if problems := loaded_plugins.problems(loaded):
        raise ConfigError(*problems)
    return read(config.read_bytes())


def _write(results: Iterable[JsonObject], encode: Any) -> None:
    out = sys.stdout.buffer
    for result in results:
        out.write(encode(result) + b"\n")
    out.flush()
