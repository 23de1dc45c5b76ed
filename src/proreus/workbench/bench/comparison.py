"""The rounds: each scheduler runs the same workload, and the order alternates between rounds.

A control plane that the bench starts itself is started anew for each pass, with the same programs
and flags and an empty etcd. An existing apiserver is cleaned up after each pass instead.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proreus.base.errors import NotFound, ProreusError
from proreus.base.kubernetes_version import DEFAULT_VERSION, KubernetesVersion
from proreus.objects.scheduling import COMPOSITE_POD_GROUPS, POD_GROUPS
from proreus.workbench.bench.api import Api, connected, for_each
from proreus.workbench.bench.control_plane import ADMIN_TOKEN, ControlPlane
from proreus.workbench.bench.executor import NAMESPACES, Executor
from proreus.workbench.bench.measures import Pass, PeriodCollector, utilisation_spread
from proreus.workbench.bench.pod_creation import PODS
from proreus.workbench.bench.pods import PodTracker
from proreus.workbench.bench.processes import Child, ChildFailed
from proreus.workbench.bench.schedulers import (
    SchedulerProcess,
    SchedulerUnderTest,
    configuration,
    hold_lease,
    release_lease,
    settable_gates,
    wait_for_leader,
    wait_until_idle,
)
from proreus.workbench.bench.workloads import ResolvedWorkload

_CLEAN_SECONDS = 120.0
_STAND_BY_SECONDS = 15.0
_DEVICE_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")

ReportProgress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """Options of the rounds.

    ``kubeconfig``: an existing apiserver to use; otherwise one is started from ``programs``.
    ``backlog``: create the measured pods before the scheduler may start on them.
    """

    rounds: int = 1
    timeout_seconds: float = 600.0
    backlog: bool = False
    kubeconfig: Path | None = None
    programs: Mapping[str, Path] = field(default_factory=dict)
    version: KubernetesVersion = DEFAULT_VERSION
    """The apiserver's version, or the nearest one that proreus can emulate."""
    keep: Path | None = None
    """Folder in which logs and configurations are kept; None: they are deleted."""


@dataclass(frozen=True)
class BenchEnvironment:
    """The cluster of one pass. With ``own`` the bench has started it, with these ``children``."""

    kubeconfig: Path
    folder: Path
    children: Mapping[str, Child]
    own: bool


async def version_of_apiserver(programs: Mapping[str, Path], kubeconfig: Path | None) -> str:
    """Return the version of the kube-apiserver that will be used, as it tells it.

    Raises ``ProreusError`` if it does not tell, ``ApiError`` if it does not respond.
    """
    if kubeconfig is not None:
        async with connected(kubeconfig) as api:
            return str((await api.get("/version"))["gitVersion"])
    program = programs["kube-apiserver"]
    asked = await asyncio.create_subprocess_exec(
        program, "--version", stdout=asyncio.subprocess.PIPE
    )
    told, _ = await asked.communicate()
    name, _, version = told.decode().strip().rpartition(" ")
    if not name:
        raise ProreusError(f"{program} --version does not tell its version")
    return version


async def compare(
    plan: ResolvedWorkload,
    schedulers_under_test: Sequence[SchedulerUnderTest],
    options: Options,
    report_progress: ReportProgress,
) -> AsyncIterator[Pass]:
    """Yield the results of each scheduler, round by round.

    A pass that fails is yielded too, with its ``failure`` set, and the next pass follows.
    """
    gates, _ = settable_gates(plan.feature_gates, options.version)
    for number in range(options.rounds):
        for under_test in schedulers_under_test[:: 1 if number % 2 == 0 else -1]:
            title = f"round {number + 1}/{options.rounds} · {under_test.name}"
            report_progress(f"{title} · control plane")
            name = f"{plan.name.replace('/', '-')}-{under_test.name}-{number}"
            async with _environment(options, gates, name) as environment:
                yield await _pass(
                    plan, under_test, gates, environment, options, number, title, report_progress
                )


async def _pass(
    plan: ResolvedWorkload,
    under_test: SchedulerUnderTest,
    gates: Mapping[str, bool],
    environment: BenchEnvironment,
    options: Options,
    number: int,
    title: str,
    report_progress: ReportProgress,
) -> Pass:
    result = Pass(under_test.name, number)
    async with (
        connected(environment.kubeconfig) as api,
        connected(environment.kubeconfig) as watch_api,
    ):
        pods = PodTracker(watch_api.client)
        collector = PeriodCollector(pods, environment.children)
        path = plan.test_case.scheduler_config_path
        base = plan.path(path) if path else None
        runner = _Runner(under_test, base, gates, options.version, environment, api, collector)
        executor = Executor(
            plan,
            api,
            pods,
            collector,
            runner if options.backlog else None,
            timeout_seconds=options.timeout_seconds,
            priority_classes=not environment.own,
        )
        watching = asyncio.create_task(pods.run())
        progress_task = asyncio.create_task(
            _report_progress_periodically(title, executor, pods, report_progress)
        )
        try:
            await pods.synced()
            result.start_seconds = await runner.start()
            await _run_while_scheduler_alive(runner, executor.run())
            result.peak_rss_bytes = collector.peak_rss_bytes()
            result.utilisation_spread = await utilisation_spread(api)
        except ProreusError as error:
            result.failure = str(error)
        finally:
            progress_task.cancel()
            await runner.finish()
            result.periods = collector.periods
            result.log_errors = runner.errors()
            if not environment.own:
                report_progress(f"{title} · cleaning up")
                await _clean_up(api, executor, pods)
            watching.cancel()
            await asyncio.gather(watching, progress_task, return_exceptions=True)
    return result


@dataclass
class _Runner:
    """The scheduler of a pass; to build a backlog, it is replaced by one that is not the leader."""

    under_test: SchedulerUnderTest
    base: Path | None
    """The file of the workload's scheduler configuration."""
    gates: Mapping[str, bool]
    version: KubernetesVersion
    environment: BenchEnvironment
    api: Api
    collector: PeriodCollector
    started: list[SchedulerProcess] = field(default_factory=list)

    async def start(self, *, elects: bool = False) -> float:
        """Start a scheduler process; return the seconds until it was ready."""
        config = configuration(self.base, self.environment.kubeconfig, elects=elects)
        name = f"scheduler-{len(self.started)}"
        process = SchedulerProcess(
            self.under_test, config, self.gates, self.version, self.environment.folder, name
        )
        self.started.append(process)
        began = time.perf_counter()
        await process.run()
        self.collector.scheduler = process
        return time.perf_counter() - began

    async def hold(self) -> None:
        """Replace the scheduler by one that has warm caches but cannot get the Lease."""
        self.collector.scheduler = None
        await self.started[-1].finish()
        await hold_lease(self.api)
        await self.start(elects=True)
        await wait_until_idle(self.started[-1], _STAND_BY_SECONDS)

    async def release(self) -> None:
        """Let the standby scheduler become the leader, and wait until it is."""
        for child in self.environment.children.values():
            await wait_until_idle(child, _STAND_BY_SECONDS)
        await release_lease(self.api)
        await wait_for_leader(self.api)

    def check(self) -> None:
        """Raise ``ChildFailed`` if the scheduler has exited by itself."""
        if self.started[-1] is self.collector.scheduler and not self.started[-1].running:
            process = self.started[-1]
            raise ChildFailed(f"{process.name} ended by itself\n{process.log_tail(5)}")

    async def finish(self) -> None:
        """Stop the scheduler that is still running."""
        for process in self.started[-1:]:
            await process.finish()

    def errors(self) -> list[str]:
        """Return the errors in the logs of all schedulers of the pass."""
        return [line for process in self.started for line in process.errors]


async def _run_while_scheduler_alive(runner: _Runner, work: Coroutine[Any, Any, None]) -> None:
    """Await ``work``, but raise ``ChildFailed`` as soon as the scheduler has exited."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=0.5)
            runner.check()
        task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _environment(
    options: Options, gates: Mapping[str, bool], name: str
) -> AsyncIterator[BenchEnvironment]:
    """Yield a folder for a pass, with a control plane in it unless an existing one is used."""
    with tempfile.TemporaryDirectory(prefix="proreus-bench-") as temporary:
        folder = (options.keep or Path(temporary)) / name
        while folder.exists():  # kept by an earlier run
            folder = folder.with_name(f"{folder.name}+")
        folder.mkdir(parents=True)
        if options.kubeconfig is not None:
            yield BenchEnvironment(options.kubeconfig.resolve(), folder, {}, own=False)
            return
        flags = _apiserver_flags(gates, options.version)
        plane = ControlPlane(options.programs, folder / "control-plane", flags=flags)
        try:
            plane.start()
            kubeconfig = plane.write_kubeconfig(folder / "token.kubeconfig", token=ADMIN_TOKEN)
            children = {"apiserver": plane.apiserver, "etcd": plane.etcd}
            yield BenchEnvironment(kubeconfig, folder, children, own=True)
        finally:
            plane.stop()


def _apiserver_flags(gates: Mapping[str, bool], version: KubernetesVersion) -> list[str]:
    """Return the apiserver's flags for feature gates and for the API versions that they need."""
    flags = []
    if gates:
        settings = ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())
        flags.append(f"--feature-gates={settings}")
    versions = []
    if gates.get("DynamicResourceAllocation"):
        versions += [f"resource.k8s.io/{version}=true" for version in _DEVICE_VERSIONS]
    if gates.get("GenericWorkload"):
        versions.append(f"{POD_GROUPS.as_of(version).api_version}=true")
    if gates.get("CompositePodGroup"):
        versions.append(f"{COMPOSITE_POD_GROUPS.as_of(version).api_version}=true")
    if versions:
        flags.append(f"--runtime-config={','.join(dict.fromkeys(versions))}")
    return flags


async def _report_progress_periodically(
    title: str, executor: Executor, pods: PodTracker, report_progress: ReportProgress
) -> None:
    """Report progress twice a second."""
    before, at = 0, time.perf_counter()
    while True:
        await asyncio.sleep(0.5)
        bound, now = len(pods.bindings), time.perf_counter()
        rate = (bound - before) / (now - at)
        report_progress(
            f"{title} · {executor.current_operation} · {bound:,} pods bound, {rate:,.0f}/s"
        )
        before, at = bound, now


async def _clean_up(api: Api, executor: Executor, pods: PodTracker) -> None:
    """Delete the objects of a pass from a cluster that existed before."""

    async def delete(path: str) -> None:
        await api.delete(path, now=True)

    for namespace in executor.namespaces:
        await delete(PODS.format(namespace))
    await pods.wait_until_gone(executor.namespaces, _CLEAN_SECONDS)
    await for_each(reversed(executor.created), delete)
    await for_each([f"{NAMESPACES}/{name}" for name in executor.namespaces], delete)
    await for_each(executor.namespaces, lambda name: _gone(api, f"{NAMESPACES}/{name}"))


async def _gone(api: Api, path: str) -> None:
    deadline = time.perf_counter() + _CLEAN_SECONDS
    found: dict[str, Any] = {}
    while time.perf_counter() < deadline:
        try:
            found = await api.get(path)
        except NotFound:
            return
        await asyncio.sleep(0.2)
    raise ProreusError(f"{path} is still there, {found.get('status')}: no namespace controller?")
