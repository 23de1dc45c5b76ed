"""``proreus evaluate``: what would the scheduler decide? Cases in, answers out, no cluster."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from proreus.offline.api import JsonObject
    from proreus.runtime.registry import Registry


@click.command("evaluate")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="KubeSchedulerConfiguration for the cases that bring none.",
)
@click.argument(
    "cases",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    metavar="CASES.jsonl[.gz]…",
)
def command(config: Path | None, cases: tuple[Path, ...]) -> None:
    """Answer scheduling questions offline, with the very engine that schedules.

    A case is a line of JSON with an id, the objects of a cluster, and either a pending pod or a
    script of steps. The answers go to standard output, a line a case.
    """
    import msgspec

    from proreus.offline.evaluate import evaluate, read_cases
    from proreus.plugins import IN_TREE
    from proreus.runtime.registry import Registry

    # what is said of each case's configuration is no news: the answers tell
    logging.getLogger("proreus").setLevel(logging.ERROR)

    def all_cases() -> Iterator[JsonObject]:
        for path in cases:
            yield from read_cases(path)

    registry = Registry(IN_TREE)
    _write(evaluate(all_cases(), registry, _read(config, registry)), msgspec.json.encode)


def _read(config: Path | None, registry: Registry) -> Any:
    """Return the file's content as plain data, if it is a configuration that can be used."""
    if config is None:
        return None
    from proreus.config.load import load_file
    from proreus.config.reading import read

    load_file(str(config), registry)
    return read(config.read_bytes())


def _write(answers: Iterable[JsonObject], encode: Any) -> None:
    out = sys.stdout.buffer
    for answer in answers:
        out.write(encode(answer) + b"\n")
    out.flush()
