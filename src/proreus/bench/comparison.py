"""The rounds: each scheduler in turn runs the same workload, and the order changes every round.

A control plane that the bench starts itself is started anew for each pass: the same programs and
flags, an empty etcd, no memory of the pass before. An apiserver that is there already is cleaned
up instead.
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

from proreus.bench.api import Api, connected, for_each
from proreus.bench.control_plane import ADMIN_TOKEN, ControlPlane
from proreus.bench.executor import NAMESPACES, Executor
from proreus.bench.measures import Pass, PeriodCollector, utilisation_spread
from proreus.bench.pod_creation import PODS
from proreus.bench.pods import PodLog
from proreus.bench.processes import Child, ChildFailed
from proreus.bench.schedulers import (
    Contestant,
    SchedulerProcess,
    configuration,
    give_lease_up,
    hold_lease,
    settable,
    until_still,
)
from proreus.bench.workloads import Plan
from proreus.errors import NotFound, ProreusError

_CLEAN_SECONDS = 120.0
_STAND_BY_SECONDS = 15.0
_DEVICE_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to run. With ``kubeconfig`` an apiserver that runs already, else ``programs`` for one."""

    rounds: int = 1
    timeout_seconds: float = 600.0
    backlog: bool = False
    kubeconfig: Path | None = None
    programs: Mapping[str, Path] = field(default_factory=dict)
    keep: Path | None = None
    """Where to leave logs and configurations; None: nowhere."""


@dataclass(frozen=True)
class Ground:
    """Where a pass takes place."""

    kubeconfig: Path
    folder: Path
    children: Mapping[str, Child]
    own: bool


async def compare(
    plan: Plan, contestants: Sequence[Contestant], options: Options, say: Say
) -> AsyncIterator[Pass]:
    """Yield what each scheduler did, round by round.

    A pass that fails is yielded too, with its ``failure``; who comes after it goes on.
    """
    gates, _ = settable(plan.feature_gates)
    for number in range(options.rounds):
        for contestant in contestants[:: 1 if number % 2 == 0 else -1]:
            title = f"round {number + 1}/{options.rounds} · {contestant.name}"
            say(f"{title} · control plane")
            name = f"{plan.name.replace('/', '-')}-{contestant.name}-{number}"
            async with _ground(options, gates, name) as ground:
                yield await _pass(plan, contestant, gates, ground, options, number, title, say)


async def _pass(
    plan: Plan,
    contestant: Contestant,
    gates: Mapping[str, bool],
    ground: Ground,
    options: Options,
    number: int,
    title: str,
    say: Say,
) -> Pass:
    result = Pass(contestant.name, number)
    async with connected(ground.kubeconfig) as api, connected(ground.kubeconfig) as looking_on:
        pods = PodLog(looking_on.client)
        collector = PeriodCollector(pods, ground.children, from_first_binding=options.backlog)
        runner = _Runner(plan, contestant, gates, ground, api, collector)
        executor = Executor(
            plan,
            api,
            pods,
            collector,
            runner if options.backlog else None,
            timeout_seconds=options.timeout_seconds,
            priority_classes=not ground.own,
        )
        watching = asyncio.create_task(pods.run())
        telling = asyncio.create_task(_tell(title, executor, pods, say))
        try:
            await pods.synced()
            result.start_seconds = await runner.start()
            await _while_alive(runner, executor.run())
            result.peak_rss_bytes = collector.peak_rss_bytes()
            result.utilisation_spread = await utilisation_spread(api)
        except ProreusError as error:
            result.failure = str(error)
        finally:
            telling.cancel()
            await runner.finish()
            result.periods = collector.periods
            result.log_errors = runner.errors()
            if not ground.own:
                say(f"{title} · cleaning up")
                await _clean_up(api, executor, pods)
            watching.cancel()
            await asyncio.gather(watching, telling, return_exceptions=True)
    return result


class _Runner:
    """The scheduler of a pass, started and, to let pods pile up, changed for one that stands by."""

    def __init__(
        self,
        plan: Plan,
        contestant: Contestant,
        gates: Mapping[str, bool],
        ground: Ground,
        api: Api,
        collector: PeriodCollector,
    ) -> None:
        self._contestant = contestant
        self._gates = gates
        self._ground = ground
        self._api = api
        self._collector = collector
        self._started: list[SchedulerProcess] = []
        path = plan.test_case.scheduler_config_path
        self._base = plan.path(path) if path else None

    async def start(self, *, elects: bool = False) -> float:
        """Start one; return the seconds until it was ready."""
        config = configuration(self._base, self._ground.kubeconfig, elects=elects)
        name = f"scheduler-{len(self._started)}"
        process = SchedulerProcess(self._contestant, config, self._gates, self._ground.folder, name)
        self._started.append(process)
        began = time.perf_counter()
        await process.run()
        self._collector.scheduler = process
        return time.perf_counter() - began

    async def hold(self) -> None:
        """Put one in its place that stands by with warm caches."""
        self._collector.scheduler = None
        await self._started[-1].finish()
        await hold_lease(self._api)
        await self.start(elects=True)
        await until_still(self._started[-1], _STAND_BY_SECONDS)

    async def release(self) -> None:
        """Let it lead."""
        for child in self._ground.children.values():
            await until_still(child, _STAND_BY_SECONDS)
        await give_lease_up(self._api)

    def check(self) -> None:
        """Raise ``ChildFailed`` when the scheduler has ended by itself."""
        if self._started[-1] is self._collector.scheduler and not self._started[-1].running:
            process = self._started[-1]
            raise ChildFailed(f"{process.name} ended by itself\n{process.log_tail(5)}")

    async def finish(self) -> None:
        """End what still runs."""
        for process in self._started[-1:]:
            await process.finish()

    def errors(self) -> list[str]:
        """Return what their logs say of errors."""
        return [line for process in self._started for line in process.errors]


async def _while_alive(runner: _Runner, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, but give up at once when there is nobody left to schedule."""
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
async def _ground(options: Options, gates: Mapping[str, bool], name: str) -> AsyncIterator[Ground]:
    """A folder, and a control plane in it unless there is one already."""
    with tempfile.TemporaryDirectory(prefix="proreus-bench-") as temporary:
        folder = (options.keep or Path(temporary)) / name
        while folder.exists():  # left by a run before
            folder = folder.with_name(f"{folder.name}+")
        folder.mkdir(parents=True)
        if options.kubeconfig is not None:
            yield Ground(options.kubeconfig.resolve(), folder, {}, own=False)
            return
        flags = _apiserver_flags(gates)
        plane = ControlPlane(options.programs, folder / "control-plane", flags=flags)
        try:
            plane.start()
            kubeconfig = plane.write_kubeconfig(folder / "token.kubeconfig", token=ADMIN_TOKEN)
            children = {"apiserver": plane.apiserver, "etcd": plane.etcd}
            yield Ground(kubeconfig, folder, children, own=True)
        finally:
            plane.stop()


def _apiserver_flags(gates: Mapping[str, bool]) -> list[str]:
    """Return what makes the apiserver serve what the gates are about."""
    flags = []
    if gates:
        settings = ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())
        flags.append(f"--feature-gates={settings}")
    versions = []
    if gates.get("DynamicResourceAllocation"):
        versions += [f"resource.k8s.io/{version}=true" for version in _DEVICE_VERSIONS]
    if gates.get("GenericWorkload"):
        versions.append("scheduling.k8s.io/v1alpha2=true")
    if versions:
        flags.append(f"--runtime-config={','.join(versions)}")
    return flags


async def _tell(title: str, executor: Executor, pods: PodLog, say: Say) -> None:
    """Say twice a second how far it is."""
    before, at = 0, time.perf_counter()
    while True:
        await asyncio.sleep(0.5)
        bound, now = len(pods.bindings), time.perf_counter()
        rate = (bound - before) / (now - at)
        say(f"{title} · {executor.doing} · {bound:,} pods bound, {rate:,.0f}/s")
        before, at = bound, now


async def _clean_up(api: Api, executor: Executor, pods: PodLog) -> None:
    """Remove what a pass left behind in a cluster that is not ours."""

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
