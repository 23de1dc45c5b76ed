"""``proreus bench``: throughput and latency next to kube-scheduler, on scheduler_perf workloads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from proreus.base.errors import ConfigError, ProreusError
from proreus.process.cli.documented_options import documented_options
from proreus.workbench.cli.pictures import check_picture

if TYPE_CHECKING:
    from proreus.workbench.bench.comparison import Options
    from proreus.workbench.bench.measures import Pass
    from proreus.workbench.bench.schedulers import SchedulerUnderTest
    from proreus.workbench.bench.workloads import ResolvedWorkload

_Positive = Annotated[int, click.IntRange(1)]
_Folder = Annotated[Path, click.Path(path_type=Path, file_okay=False)]
_ExistingFile = Annotated[Path, click.Path(path_type=Path, dir_okay=False, exists=True)]


@click.command("bench", short_help="Measure proreus and kube-scheduler on one workload.")
@documented_options
def command(
    *,
    config: tuple[Path, ...] = (),
    workload: tuple[str, ...] = (),
    list_: bool = False,
    set_: tuple[str, ...] = (),
    scheduler: str = "both",
    bare: bool = False,
    rounds: _Positive = 1,
    backlog: bool = False,
    assets: _Folder | None = None,
    kubeconfig: _ExistingFile | None = None,
    timeout: Annotated[float, click.FloatRange(min=1)] = 600.0,
    simulate: bool = False,
    nodes: tuple[_Positive, ...] = (),
    pods: _Positive | None = None,
    recorded: bool = False,
    json_: Path | None = None,
    plot: Path | None = None,
    keep: _Folder | None = None,
) -> None:
    """Run a workload against an apiserver, with proreus, kube-scheduler or both in turn.

    Workloads are files in the format of Kubernetes' scheduler_perf; those of a Kubernetes checkout
    run unchanged. Unless --kubeconfig is given, etcd and kube-apiserver are started on loopback,
    anew for each scheduler and round.

    --config
        File of workloads in scheduler_perf's format, or a folder of such files; may be repeated.
        Default, in a checkout of proreus: tests/bench/workloads.
    --workload CASE/WORKLOAD
        Workload to run; may be repeated.
    --list
        Only list the workloads of the files.
    --set PARAMETER=VALUE
        Use another value for a parameter of the workload; may be repeated.
    --scheduler proreus|PATH|both
        The scheduler: proreus, a kube-scheduler binary, or both in turn. [default]
    --bare
        Also run a client that only binds: the apiserver's limit.
    --rounds
        How often each scheduler runs the workload; medians are reported. [default]
    --backlog
        Create the measured pods before the scheduler starts on them, and measure how fast it drains
        that backlog. Default: it schedules while they are created, as in scheduler_perf.
    --assets
        Folder with etcd, kube-apiserver and kube-scheduler; KUBEBUILDER_ASSETS and PATH are
        searched after it.
    --kubeconfig
        Use the apiserver of this kubeconfig (no other scheduler may run there).
    --timeout
        Seconds without progress after which pods count as stuck. [default]
    --simulate
        Measure the engine alone, at growing sizes, without an apiserver.
    --nodes
        With --simulate: only these sizes.
    --pods
        With --simulate: number of pods to schedule.
    --recorded
        With --simulate: also with the record of decisions.
    --json
        File to write all figures to.
    --plot
        File (.svg or .png) for a plot.
    --keep
        Folder to keep all logs in.
    """
    # In this module imports are local: matplotlib and the bench would cost each --help a second.
    if simulate:
        from proreus.workbench.cli.simulation import run

        run(nodes, pods, rounds, json_, recorded)
        return
    if nodes or pods:
        raise ConfigError("--nodes and --pods need --simulate; for a workload use --set")
    from proreus.base.kubernetes_version import KubernetesVersion
    from proreus.workbench.bench.comparison import Options, version_of_apiserver
    from proreus.workbench.bench.control_plane import PROGRAMS, find_programs
    from proreus.workbench.bench.schedulers import nearest_supported, schedulers_under_test

    files = _files(config)
    if list_:
        _list(files)
        return
    plans = _plans(files, workload, _values(set_))
    if plot:
        check_picture("--plot", plot)
    programs = {} if kubeconfig else find_programs(PROGRAMS, assets)
    version = asyncio.run(version_of_apiserver(programs, kubeconfig))
    options = Options(
        rounds=rounds,
        timeout_seconds=timeout,
        backlog=backlog,
        kubeconfig=kubeconfig,
        programs=programs,
        version=nearest_supported(KubernetesVersion.parse(version)),
        keep=keep,
    )
    _run(plans, schedulers_under_test(scheduler, bare, assets), options, json_, plot)


_OURS = Path("tests/bench/workloads")


def _files(configs: tuple[Path, ...]) -> list[Path]:
    """Return the given files, and the files in the given folders."""
    files = []
    if not configs and _OURS.is_dir():
        configs = (_OURS,)
    for path in configs:
        inside = sorted(path.glob("*.yaml")) or sorted(path.rglob("performance-config.yaml"))
        files += inside if path.is_dir() else [path]
    if not files:
        raise ConfigError("--config: name a file of workloads, or a folder that has some")
    return files


def _list(files: list[Path]) -> None:
    from proreus.workbench.bench.workloads import load

    for path in files:
        click.echo(str(path))
        for case in load(path):
            for workload in case.workloads:
                parameters = ", ".join(f"{key}={value}" for key, value in workload.params.items())
                click.echo(f"  {case.name}/{workload.name}  {parameters}")


def _values(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Read PARAMETER=VALUE: numbers and booleans as such."""
    values = {}
    for setting in overrides:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: must be PARAMETER=VALUE")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def _plans(
    files: list[Path], chosen: tuple[str, ...], overrides: dict[str, Any]
) -> list[ResolvedWorkload]:
    """Return the chosen workloads; raises ``ConfigError`` for one that is in no file."""
    from proreus.workbench.bench.workloads import load, names, plan

    if not chosen:
        raise ConfigError("--workload: name what to run; --list shows what there is")
    loaded = [(path, load(path)) for path in files]
    plans = []
    for name in chosen:
        found = [(path, cases) for path, cases in loaded if name in names(cases)]
        if not found and len(loaded) > 1:
            raise ConfigError(f"no workload {name} in these files; --list shows what there is")
        path, cases = found[0] if found else loaded[0]
        plans.append(plan(cases, name, path.parent, overrides))
    return plans


def _run(
    plans: list[ResolvedWorkload],
    schedulers_under_test: list[SchedulerUnderTest],
    options: Options,
    json_path: Path | None,
    plot_path: Path | None,
) -> None:
    """Run all workloads, print tables, write files; raises ``ProreusError`` if a pass failed.

    Passes completed before an interrupt are printed and written too.
    """
    from rich.console import Console

    from proreus.workbench.bench import plot, report
    from proreus.workbench.bench.schedulers import settable_gates

    console, progress = Console(), Console(stderr=True)
    documents, failed = [], False
    for plan in plans:
        for note in (*plan.notes, *settable_gates(plan.feature_gates, options.version)[1]):
            progress.print(f"{plan.name}: {note}", highlight=False)
        passes, interrupted = _passes(plan, schedulers_under_test, options, progress)
        console.print(plan.name, style="bold", highlight=False)
        console.print(report.table(passes))
        for line in report.failure_lines(passes):
            console.print(line, style="red", markup=False, highlight=False)
        failed = failed or any(one.failure for one in passes)
        settings = {"rounds": options.rounds, "backlog": options.backlog}
        documents.append(report.as_json(plan, passes, settings))
        if plot_path:
            plot.draw(_numbered(plot_path, len(documents), len(plans)), plan.name, passes)
        # After each workload: an error in a later one must not cost the figures of hours.
        if json_path:
            json_path.write_text(json.dumps(documents, indent=2) + "\n")
        if interrupted:
            raise click.Abort
    if failed:
        raise ProreusError("not every pass was completed")


def _passes(
    plan: ResolvedWorkload,
    schedulers_under_test: list[SchedulerUnderTest],
    options: Options,
    progress: Any,
) -> tuple[list[Pass], bool]:
    """Run one workload and report progress; return its passes, and whether it was interrupted."""
    from proreus.workbench.bench.comparison import compare
    from proreus.workbench.cli.sandbox import run_until_signalled

    passes: list[Pass] = []
    finished: list[bool] = []
    with progress.status(plan.name) as status:

        async def work() -> None:
            async for one in compare(plan, schedulers_under_test, options, status.update):
                passes.append(one)
                main = one.main
                result = one.failure or (main and f"{main.pods_per_second:,.0f} pods/s") or "done"
                progress.print(
                    f"round {one.round + 1} · {one.scheduler}: {result}", highlight=False
                )
            finished.append(True)

        run_until_signalled(work)
    return passes, not finished


def _numbered(path: Path, number: int, count: int) -> Path:
    return path if count == 1 else path.with_stem(f"{path.stem}-{number}")
