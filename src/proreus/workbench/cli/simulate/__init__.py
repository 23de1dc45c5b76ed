"""``proreus simulate`` shows the scheduler's decisions for a file of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click

from proreus.base.errors import ConfigError
from proreus.process.cli.documented_options import documented_options
from proreus.process.cli.plugin_options import plugin_options
from proreus.workbench.cli.pictures import check_picture
from proreus.workbench.cli.simulate.configurations import Configurations

if TYPE_CHECKING:
    from proreus.workbench.cli.simulate.output import Output
    from proreus.workbench.simulation.scenario import Scenario
    from proreus.workbench.simulation.simulated_cluster import Settings

NOT_ALL_PLACED = 3
"""The exit code where ``--require-all-placed`` is not fulfilled; 1 is bad input, 2 a bad option."""


@click.command("simulate", short_help="Try changes on a snapshot of a cluster.")
@click.argument("cluster", nargs=-1, type=click.Path(path_type=Path), metavar="CLUSTER...")
@documented_options
@plugin_options
def command(
    *,
    cluster: tuple[Path, ...],
    add: tuple[Path, ...] = (),
    replicas: Annotated[int, click.IntRange(0)] | None = None,
    remove: tuple[str, ...] = (),
    add_nodes: tuple[tuple[str, str], ...] = (),
    drain: tuple[str, ...] = (),
    evict_all: bool = False,
    capacity: tuple[str, ...] = (),
    capacity_limit: Annotated[int, click.IntRange(1)] = 100_000,
    config: Path | None = None,
    compare: tuple[Path, Path] | None = None,
    replay: Path | None = None,
    picture: Path | None = None,
    open_: bool = False,
    seed: int = 0,
    require_all_placed: bool = False,
    output: Literal["table", "json", "yaml"] = "table",
    timings: bool = False,
    emulated_version: str | None = None,
    feature_gates: tuple[str, ...] = (),
    corrections: str = "",
    plugin: tuple[str, ...],
    plugin_dir: tuple[str, ...],
) -> int:
    """Try changes on a snapshot of a cluster, with the engine of `proreus run`.

    CLUSTER: files of `proreus snapshot`, or of `kubectl get ... -o json` or `-o yaml`; - is
    standard input. Nothing is sent anywhere: the cluster itself stays as it is.

    --add FILE
        Add pods, or the pods of workloads, and what they need; may be repeated.
    --replicas
        Number of each pod of --add. Default: 1, and of a workload what it says.
    --remove REFERENCE
        Remove node/NAME, pod/NAMESPACE/NAME or workload/NAMESPACE/NAME; may be repeated.
    --add-nodes FILE|node/NAME xN
        Add N nodes like that of a file or of the cluster; may be repeated.
    --drain NODE
        Cordon a node and evict its pods; may be repeated.
    --evict-all
        Place all pods anew, the oldest first.
    --capacity FILE|pod/NAMESPACE/NAME
        Report how many more pods like this one fit, and what runs out; may be repeated.
    --capacity-limit
        Number of pods after which --capacity stops. [default]
    --config
        KubeSchedulerConfiguration. Default: the built-in one.
    --compare FILE FILE
        Run everything under two configurations, and compare them.
    --replay FILE
        Replay what proreus run --record-arrivals has recorded, instead of CLUSTER.
    --picture FILE
        With --compare, draw the result to an .svg or .png file.
    --open
        Show the result in the browser too, on loopback, until interrupted.
    --seed
        Seed of every random choice: equal runs give equal results. [default]
    --require-all-placed
        Exit with 3 if a pod has no node at the end.
    -o, --output
        Form of the report; json and yaml list every pod. [default]
    --timings
        Report wall-clock times too, which differ from run to run. Default: on standard error.
    --emulated-version VERSION
        Kubernetes version to emulate. Default: that of the snapshot, or else the latest.
    --feature-gates NAME=BOOL,...
        Feature gates.
    --corrections NAME,...
        Faults of kube-scheduler to correct, as of proreus run.
    """
    from proreus.process import gc_tuning
    from proreus.workbench.cli.simulate.output import Output
    from proreus.workbench.simulation.scenario import Scenario
    from proreus.workbench.simulation.scenario_run import run_scenario

    # Almost nothing here is garbage, and each collection would walk the whole cluster.
    gc_tuning.collect_rarely_at_start()
    changes = (add, remove, add_nodes, drain, evict_all, capacity)
    _check(
        (
            replay and (cluster or any(changes)),
            "--replay has a cluster of its own, and what happens in it",
        ),
        (
            not (cluster or replay),
            "name a file with a cluster: one of proreus snapshot, for instance",
        ),
        (
            compare and config,
            "--compare names the configurations; --config does not go with it",
        ),
        (compare and capacity, "--capacity and --compare do not go together"),
        (picture and replay, "--picture does not go with --replay"),
        (picture and not compare, "--picture needs --compare"),
        (
            open_ and (compare or capacity or replay),
            "--open does not go with --compare, --capacity or --replay",
        ),
    )
    if picture:
        check_picture("--picture", picture)
    configurations = Configurations(
        emulated_version, feature_gates, corrections, plugin, plugin_dir, seed
    )
    with Output(output, timings) as shown:
        if replay:
            placed = _replay(replay, configurations, compare or (config,), shown)
            return 0 if placed or not require_all_placed else NOT_ALL_PLACED
        scenario = Scenario(shown.reading(cluster))
        # First new nodes, then removals, then new pods.
        for template, times in add_nodes:
            scenario.add_nodes(template, _count(times))
        for reference in remove:
            scenario.remove(reference)
        for name in drain:
            scenario.drain(name)
        if evict_all:
            scenario.evict_all()
        for path in add:
            scenario.add_file(path, replicas)
        version = scenario.before.version
        if capacity:
            settings = configurations.settings(version, config, shown, "placing")
            return _capacity(scenario, settings, capacity, capacity_limit, shown)
        if compare:
            placed = _compare(scenario, configurations, compare, picture, shown)
            return 0 if placed or not require_all_placed else NOT_ALL_PLACED
        settings = configurations.settings(version, config, shown, "scheduling")
        if open_:
            from proreus.workbench.cli.simulate.result_page import ResultPage

            page = ResultPage()
            result, measured = run_scenario(scenario, settings, page.watch)
        else:
            result, measured = run_scenario(scenario, settings)
        shown.show_result(result, measured)
    if open_:
        # Not before: a report that goes to a file or a pipe is complete by now.
        page.serve()
    return NOT_ALL_PLACED if require_all_placed and result.unplaced else 0


def _check(*faults: tuple[object, str]) -> None:
    """Raise for options that do not go together, before anything is read."""
    for is_there, text in faults:
        if is_there:
            raise click.UsageError(text)


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
) -> bool:
    """Compare two configurations, and return whether all pods have a node under both."""
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
    return not (first.unplaced or second.unplaced)


def _replay(
    path: Path,
    configurations: Configurations,
    paths: Sequence[Path | None],
    output: Output,
) -> bool:
    """Replay a recording under each configuration, and return whether all pods have a node."""
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
    return not any(result.result.unplaced for result, _ in found)


def _names(paths: tuple[Path, Path]) -> tuple[str, str]:
    """Return short names of two files, different ones."""
    first, second = paths
    if first.stem != second.stem:
        return first.stem, second.stem
    return str(first), str(second)
