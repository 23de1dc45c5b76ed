"""``proreus simulate`` shows the scheduler's decisions for a file of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proreus.base.errors import ConfigError
from proreus.process.cli.plugin_options import plugin_options
from proreus.workbench.cli.pictures import check_picture
from proreus.workbench.cli.simulate.configurations import Configurations

if TYPE_CHECKING:
    from proreus.insight.snapshots.cluster_objects import ClusterObjects
    from proreus.workbench.cli.simulate.output import Output
    from proreus.workbench.simulation.scenario import Scenario
    from proreus.workbench.simulation.simulated_cluster import Settings

NOT_ALL_PLACED = 3
"""The exit code where ``--require-all-placed`` is not fulfilled; 1 is bad input, 2 a bad option."""

_PATH = click.Path(path_type=Path)


@click.command("simulate", short_help="Try changes on a snapshot of a cluster.")
@click.argument("cluster", nargs=-1, type=_PATH, metavar="CLUSTER...")
@click.option(
    "--add",
    "added",
    multiple=True,
    type=_PATH,
    metavar="FILE",
    help="Add pods, or the pods of workloads, and what they need; may be repeated.",
)
@click.option(
    "--replicas",
    type=click.IntRange(0),
    help="Number of each pod of --add. Default: 1, and of a workload what it says.",
)
@click.option(
    "--remove",
    "removed",
    multiple=True,
    metavar="REFERENCE",
    help="Remove node/NAME, pod/NAMESPACE/NAME or workload/NAMESPACE/NAME; may be repeated.",
)
@click.option(
    "--add-nodes",
    multiple=True,
    nargs=2,
    metavar="FILE|node/NAME xN",
    help="Add N nodes like that of a file or of the cluster; may be repeated.",
)
@click.option(
    "--drain",
    "drained",
    multiple=True,
    metavar="NODE",
    help="Cordon a node and evict its pods; may be repeated.",
)
@click.option("--evict-all", is_flag=True, help="Place all pods anew, the oldest first.")
@click.option(
    "--capacity",
    "references",
    multiple=True,
    metavar="FILE|pod/NAMESPACE/NAME",
    help="Report how many more pods like this one fit, and what runs out; may be repeated.",
)
@click.option(
    "--capacity-limit",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Number of pods after which --capacity stops.",
)
@click.option("--config", type=_PATH, help="KubeSchedulerConfiguration. Default: the built-in one.")
@click.option(
    "--compare",
    nargs=2,
    type=_PATH,
    metavar="FILE FILE",
    help="Run everything under two configurations, and compare them.",
)
@click.option(
    "--replay",
    "recording",
    type=_PATH,
    metavar="FILE",
    help="Replay what proreus run --record-arrivals has recorded, instead of CLUSTER.",
)
@click.option(
    "--picture",
    type=_PATH,
    metavar="FILE",
    help="With --compare, draw the result to an .svg or .png file.",
)
@click.option(
    "--open",
    "opened",
    is_flag=True,
    help="Show the result in the browser too, on loopback, until interrupted.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of every random choice: equal runs give equal results.",
)
@click.option(
    "--require-all-placed",
    is_flag=True,
    help=f"Exit with {NOT_ALL_PLACED} if a pod has no node at the end.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Form of the report; json and yaml list every pod.",
)
@click.option(
    "--timings",
    is_flag=True,
    help="Report wall-clock times too, which differ from run to run. Default: on standard error.",
)
@click.option(
    "--emulated-version",
    metavar="VERSION",
    help="Kubernetes version to emulate. Default: that of the snapshot, or else the latest.",
)
@click.option(
    "--feature-gates", "gates", multiple=True, metavar="NAME=BOOL,...", help="Feature gates."
)
@click.option(
    "--corrections",
    metavar="NAME,...",
    default="",
    help="Faults of kube-scheduler to correct, as of proreus run.",
)
@plugin_options
def command(
    cluster: tuple[Path, ...],
    added: tuple[Path, ...],
    replicas: int | None,
    removed: tuple[str, ...],
    add_nodes: tuple[tuple[str, str], ...],
    drained: tuple[str, ...],
    evict_all: bool,
    references: tuple[str, ...],
    capacity_limit: int,
    config: Path | None,
    compare: tuple[Path, Path] | None,
    recording: Path | None,
    picture: Path | None,
    opened: bool,
    seed: int,
    require_all_placed: bool,
    form: str,
    timings: bool,
    emulated_version: str | None,
    gates: tuple[str, ...],
    corrections: str,
    plugin: tuple[str, ...],
    plugin_dir: tuple[str, ...],
) -> int:
    """Try changes on a snapshot of a cluster, with the engine of `proreus run`.

    CLUSTER: files of `proreus snapshot`, or of `kubectl get ... -o json` or `-o yaml`; - is
    standard input. Nothing is sent anywhere: the cluster itself stays as it is.
    """
    from proreus.process import gc_tuning
    from proreus.workbench.cli.simulate.output import Output

    # Almost nothing here is garbage, and each collection would walk the whole cluster.
    gc_tuning.collect_rarely_at_start()
    changes = (added, removed, add_nodes, drained, evict_all, references)
    _check(cluster, config, compare, picture, references, recording, any(changes))
    if opened and (compare or references or recording):
        raise click.UsageError("--open does not go with --compare, --capacity or --replay")
    configurations = Configurations(emulated_version, gates, corrections, plugin, plugin_dir, seed)
    with Output(form, timings) as output:
        if recording:
            paths = compare or (config,)
            return _replay(recording, configurations, paths, output, require_all_placed)
        scenario = _scenario(
            output.reading(cluster), added, replicas, removed, add_nodes, drained, evict_all
        )
        version = scenario.before.version
        if references:
            settings = configurations.settings(version, config, output, "placing")
            return _capacity(scenario, settings, references, capacity_limit, output)
        if compare:
            return _compare(scenario, configurations, compare, picture, output, require_all_placed)
        from proreus.workbench.simulation.scenario_run import run_scenario

        settings = configurations.settings(version, config, output, "scheduling")
        if opened:
            from proreus.workbench.cli.simulate.result_page import ResultPage

            page = ResultPage()
            result, measured = run_scenario(scenario, settings, page.watch)
        else:
            result, measured = run_scenario(scenario, settings)
        output.show_result(result, measured)
    if opened:
        # Not before: a report that goes to a file or a pipe is complete by now.
        page.serve()
    return NOT_ALL_PLACED if require_all_placed and result.unplaced else 0


def _check(
    cluster: tuple[Path, ...],
    config: Path | None,
    compare: tuple[Path, Path] | None,
    picture: Path | None,
    references: tuple[str, ...],
    recording: Path | None,
    changes: bool,
) -> None:
    """Raise for options that do not go together, before anything is read."""
    if recording and (cluster or changes):
        raise click.UsageError("--replay has a cluster of its own, and what happens in it")
    if not cluster and not recording:
        raise click.UsageError("name a file with a cluster: one of proreus snapshot, for instance")
    if compare and config:
        raise click.UsageError("--compare names the configurations; --config does not go with it")
    if compare and references:
        raise click.UsageError("--capacity and --compare do not go together")
    if picture and recording:
        raise click.UsageError("--picture does not go with --replay")
    if picture:
        if not compare:
            raise click.UsageError("--picture needs --compare")
        check_picture("--picture", picture)


def _scenario(
    objects: ClusterObjects,
    added: tuple[Path, ...],
    replicas: int | None,
    removed: tuple[str, ...],
    add_nodes: tuple[tuple[str, str], ...],
    drained: tuple[str, ...],
    evict_all: bool,
) -> Scenario:
    """Return the scenario: first new nodes, then removals, then new pods."""
    from proreus.workbench.simulation.scenario import Scenario

    scenario = Scenario(objects)
    for template, times in add_nodes:
        scenario.add_nodes(template, _count(times))
    for reference in removed:
        scenario.remove(reference)
    for name in drained:
        scenario.drain(name)
    if evict_all:
        scenario.evict_all()
    for path in added:
        scenario.add_file(path, replicas)
    return scenario


def _count(text: str) -> int:
    """Return the number in ``x3`` or ``3``."""
    digits = text.removeprefix("x")
    if not digits.isdecimal():
        raise ConfigError(f"--add-nodes: {text!r} is not a number of nodes such as x3")
    return int(digits)


def _capacity(
    scenario: Scenario,
    settings: Settings,
    references: tuple[str, ...],
    limit: int,
    output: Output,
) -> int:
    from proreus.workbench.simulation.capacity import measure_capacity

    output.show_capacity(measure_capacity(scenario, settings, list(references), limit))
    return 0


def _compare(
    scenario: Scenario,
    configurations: Configurations,
    paths: tuple[Path, Path],
    picture: Path | None,
    output: Output,
    require_all_placed: bool,
) -> int:
    from proreus.workbench.simulation.comparison import compare_results
    from proreus.workbench.simulation.picture import draw_comparison
    from proreus.workbench.simulation.scenario_run import run_scenario

    if not scenario.pending():
        raise ConfigError(
            "no pod waits for a node, so there is nothing to compare: --evict-all places all pods "
            "of the cluster anew, --add adds some"
        )
    names = _names(paths)
    settings = [
        configurations.settings(scenario.before.version, path, output, name)
        for path, name in zip(paths, names, strict=True)
    ]
    runs = [run_scenario(scenario, one) for one in settings]
    (first, first_timings), (second, second_timings) = runs
    comparison = compare_results(names, first, second)
    output.show_comparison(comparison, (first_timings, second_timings))
    if picture:
        draw_comparison(picture, comparison)
    return NOT_ALL_PLACED if require_all_placed and (first.unplaced or second.unplaced) else 0


def _replay(
    path: Path,
    configurations: Configurations,
    paths: Sequence[Path | None],
    output: Output,
    require_all_placed: bool,
) -> int:
    """Replay a recording under each configuration, show the results, and return the exit code."""
    from proreus.workbench.simulation.replay import Recording, replay

    with output.busy("reading"):
        recording = Recording(path)
    names = ["replayed" if one is None else one.stem for one in paths]
    settings = [
        configurations.settings(recording.version, one, output, name)
        for one, name in zip(paths, names, strict=True)
    ]
    found = [replay(recording, one) for one in settings]
    output.show_replays(names, [result for result, _ in found], [timings for _, timings in found])
    incomplete = any(result.result.unplaced for result, _ in found)
    return NOT_ALL_PLACED if require_all_placed and incomplete else 0


def _names(paths: tuple[Path, Path]) -> tuple[str, str]:
    """Return short names of two files, different ones."""
    first, second = paths
    if first.stem != second.stem:
        return first.stem, second.stem
    return str(first), str(second)
