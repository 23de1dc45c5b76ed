"""``proreus simulate --replay``: a recording under one configuration or two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proreus.base.kubernetes_version import KubernetesVersion
    from proreus.workbench.cli.simulate.configurations import Configurations
    from proreus.workbench.cli.simulate.output import Output


def run_replay(
    path: Path,
    configurations_for: Callable[[KubernetesVersion], Configurations],
    configs: Sequence[Path | None],
    output: Output,
    require_all_placed: bool,
) -> int:
    """Replay a recording under each configuration, show the results, and return the exit code."""
    from proreus.workbench.cli.simulate import NOT_ALL_PLACED
    from proreus.workbench.simulation.replay import Recording, replay

    with output.busy("reading"):
        recording = Recording(path)
    configurations = configurations_for(recording.version)
    names = [_name(config) for config in configs]
    settings = [
        configurations.settings(config, output, name)
        for config, name in zip(configs, names, strict=True)
    ]
    found = [replay(recording, one) for one in settings]
    output.show_replays(names, [result for result, _ in found], [timings for _, timings in found])
    incomplete = any(result.result.unplaced for result, _ in found)
    return NOT_ALL_PLACED if require_all_placed and incomplete else 0


def _name(config: Path | None) -> str:
    return "replayed" if config is None else config.stem
