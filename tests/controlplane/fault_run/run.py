"""One fault run: sets everything up, alternates faults and quiet, and returns the figures."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envtest import pod_groups
from envtest.assertions import node_of
from envtest.control_plane import ControlPlane
from envtest.progress import say
from envtest.schedulers import Kind, RunScheduler

from fault_run import steps
from fault_run.controllers import Controllers
from fault_run.instances import (
    LEASE_SECONDS,
    Instance,
    faketime,
    remove_files_of_faketime,
    scheduler_configuration,
    start_instances,
)
from fault_run.judge import Judge
from fault_run.load import Load, create_cluster
from fault_run.observer import Observer
from fault_run.pod_kinds import KIND
from fault_run.process_faults import ProcessFaults
from fault_run.proxy import FaultProxy
from fault_run.record import RequestRecord
from fault_run.request_faults import FaultSource
from fault_run.unsteady_extender import UnsteadyExtender
from proreus.workbench.bench.processes import Child, free_ports

Json = dict[str, Any]

ROUND_SECONDS = 60.0
"""How long faults go on before a quiet time, in which everything has to become well."""

PLUGIN = "CoolRacks"
_PLUGIN_FILE = Path(__file__).parents[3] / "examples/out-of-process-python/plugin.py"
_TICK_SECONDS = 0.05
_WELL_AGAIN_SECONDS = 5.0
_MEAN_PROCESS_FAULT_SECONDS = 5.0
"""A scheduler takes a few seconds of a busy machine to start, and is to work as well."""

SHARES = {
    steps.BIND: 0.15,
    steps.CLAIM: 0.15,
    steps.CLAIM_STATUS: 0.15,
    steps.VOLUME: 0.15,
    steps.VOLUME_CLAIM: 0.15,
    steps.EVENT: 0.05,
    steps.POD_STATUS: 0.15,
    steps.EVICT: 0.2,
    steps.GROUP_STATUS: 0.15,
    steps.LEASE: 0.02,
    steps.READ: 0.1,
    steps.WATCH: 0.1,
    steps.REVIEW: 0.05,
}
"""The share of requests that get a fault, by step."""


@dataclass
class Figures:
    """The outcome of a run."""

    seed: int
    seconds: float = 0.0
    pods: int = 0
    bound: int = 0
    evicted: int = 0
    violations: list[str] = field(default_factory=list)
    unfenced: list[str] = field(default_factory=list)
    bound_twice: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    leaderless_seconds: list[float] = field(default_factory=list)
    """After each round: from the last fault until a scheduler held the Lease."""
    recovery_seconds: list[float] = field(default_factory=list)
    """From then until all pods were bound that had been created before."""
    exits: Counter[str] = field(default_factory=Counter)
    bindings: int = 0
    log_bytes: int = 0
    log_lines: int = 0
    tracebacks: list[str] = field(default_factory=list)
    by_kind: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """Return the figures as lines of text."""
        leaderless, recovery = (
            ", ".join(f"{seconds:.1f}" for seconds in each)
            for each in (self.leaderless_seconds, self.recovery_seconds)
        )
        return [
            f"seed {self.seed}: {self.seconds:.0f} s, {self.faults.total()} faults",
            f"pods {self.pods}: {dict(self.by_kind)}",
            f"bound {self.bound}, evicted {self.evicted}, binding requests {self.bindings}",
            f"faults: {dict(self.faults.most_common())}",
            f"ends of processes: {dict(self.exits)}",
            f"after each round, seconds until a leader: {leaderless}",
            f"from then until all pods were bound: {recovery}",
            f"log: {self.log_bytes} bytes, {self.log_lines} lines",
            f"violations {len(self.violations)}: {self.violations[:5]}",
            f"bound twice {len(self.bound_twice)}: {self.bound_twice[:5]}",
            f"bindings of who does not lead {len(self.unfenced)}: {self.unfenced[:5]}",
            f"tracebacks {len(self.tracebacks)}: {self.tracebacks[:3]}",
        ]


class FaultRun:
    """A run of ``seconds`` with ``pods_a_second``; ``run`` returns the figures.

    ``logs``: the folder that gets the schedulers' logs.
    """

    def __init__(
        self,
        plane: ControlPlane,
        run_scheduler: RunScheduler,
        folder: Path,
        *,
        kind: Kind,
        seed: int,
        seconds: float,
        pods_a_second: float = 22.0,
        logs: Path | None = None,
    ) -> None:
        self._plane = plane
        self._run_scheduler = run_scheduler
        self._folder = folder
        self._kind = kind
        self._seconds = seconds
        self._logs = logs
        self._figures = Figures(seed)
        rng = {name: random.Random(f"{seed} {name}") for name in ("faults", "load", "end", "more")}
        self._rng = rng["more"]
        self._judge = Judge()
        self._record = RequestRecord(LEASE_SECONDS)
        self._faults = FaultSource(rng["faults"], SHARES)
        self._observer = Observer(plane.client, self._judge)
        self._load = Load(plane.client, self._judge, rng["load"], pods_a_second)
        self._controllers = Controllers(plane.client, self._judge, rng["end"])
        self._instances: dict[str, Instance] = {}
        self._last = False

    def run(self) -> Figures:
        """Run, and wait until all pods are bound."""
        say(f"fault run with seed {self._figures.seed}: {self._seconds:g} s")
        with ExitStack() as cleanup:
            processes = self._set_up(cleanup)
            started = time.monotonic()
            while (left := started + self._seconds - time.monotonic()) > 1:
                self._round(processes, min(ROUND_SECONDS, left))
            self._figures.seconds = time.monotonic() - started
            self._finish(processes)
        return self._figures

    def _set_up(self, cleanup: ExitStack) -> ProcessFaults:
        plane = self._plane
        create_cluster(plane.client)
        extender = UnsteadyExtender(plane.client)
        cleanup.callback(extender.close)
        proxy = FaultProxy(plane.server, plane.folder / "pki", self._faults, self._record)
        cleanup.callback(proxy.close)
        flags, plugin = pod_groups.flags_of(), None
        if self._kind == "proreus":
            plugin = self._start_plugin(cleanup)
            flags.append(f"--plugin-endpoint=http://127.0.0.1:{plugin.command[-1]}")
        configs = {
            name: scheduler_configuration(
                plane,
                self._folder,
                name,
                proxy.listen(name),
                extender.configuration(),
                PLUGIN if plugin else "",
            )
            for name in ("a", "b")
        }
        cleanup.callback(remove_files_of_faketime)
        offset, clock = faketime(self._folder)
        clock = clock if self._kind == "proreus" else {}  # Go does not use the C library
        self._instances = start_instances(self._run_scheduler, configs, flags, clock, self._folder)
        processes = ProcessFaults(
            self._rng,
            plane,
            proxy,
            self._record,
            self._instances,
            mean_seconds=_MEAN_PROCESS_FAULT_SECONDS,
        )
        processes.add_extender(extender)
        if plugin:
            processes.add_plugin(plugin)
        if clock:
            processes.add_clock(offset)
        else:
            say("NO CLOCK IS SET IN THIS RUN: libfaketime is not installed, or cannot be used")
        for thread in (self._observer, self._load, self._controllers):
            thread.start()
            cleanup.callback(thread.stop)
        # the proxy's connections to a process that is suspended would outlive it
        cleanup.callback(processes.end_all)
        return processes

    def _start_plugin(self, cleanup: ExitStack) -> Child:
        [port] = free_ports(1)
        command = [sys.executable, str(_PLUGIN_FILE), str(port)]
        plugin = Child("plugin", command, self._folder / "plugin.log")
        plugin.start()
        cleanup.callback(plugin.kill)
        return plugin

    def _round(self, processes: ProcessFaults, seconds: float) -> None:
        self._faults.active = True
        self._wait(processes, seconds, lambda: False, begin=True)
        self._faults.active = False
        processes.end_all()
        last_fault = time.monotonic()
        before = dict(self._load.created)
        self._wait(processes, 60, lambda: self._led_since(last_fault))
        led = time.monotonic()
        self._wait(processes, _WELL_AGAIN_SECONDS, lambda: self._all_bound(before))
        slow = sorted(before[uid] for uid in self._unbound(before))
        self._wait(processes, 60, lambda: self._all_bound(before))
        well = time.monotonic()
        self._figures.leaderless_seconds.append(led - last_fault)
        self._figures.recovery_seconds.append(well - led)
        drawn = self._faults.drawn.total() + processes.done.total()
        say(
            f"{len(self._load.created)} pods, {drawn} faults, "
            f"a leader after {led - last_fault:.1f} s, well {well - led:.1f} s later, "
            f"{len(self._judge.violations)} violations; {len(slow)} pods were slow {slow[:5]}"
        )

    def _wait(
        self,
        processes: ProcessFaults,
        seconds: float,
        done: Callable[[], bool],
        *,
        begin: bool = False,
    ) -> None:
        deadline = time.monotonic() + seconds
        while (now := time.monotonic()) < deadline and not done():
            processes.tick(now, begin=begin)
            time.sleep(_TICK_SECONDS)

    def _led_since(self, moment: float) -> bool:
        """Return whether a scheduler has written the Lease since then, and still runs."""
        holder = self._instances.get(self._record.holder or "")
        return holder is not None and holder.process.running and self._record.renewed > moment

    def _all_bound(self, pods: dict[str, str]) -> bool:
        """Return whether each of the pods has been bound, or was evicted."""
        return not self._unbound(pods)

    def _unbound(self, pods: dict[str, str]) -> set[str]:
        known = self._judge.bound_at.keys() | self._judge.evicted | self._controllers.ended.keys()
        # a filler may have to wait until a preemptor ends
        return {
            uid for uid in pods.keys() - known if self._last or not pods[uid].startswith("filler")
        }

    def _finish(self, processes: ProcessFaults) -> None:
        """Let everything fit, wait until all is bound, and collect the figures."""
        figures, judge = self._figures, self._judge
        self._last = True
        self._load.stop()
        for pod in self._judge.pods():
            if pod["metadata"]["labels"][KIND] == "preemptor" and node_of(pod):
                self._controllers.end(pod)
        created = dict(self._load.created)

        self._wait(processes, 60, lambda: self._all_bound(created))
        self._controllers.stop_ending_pods()
        self._wait(
            processes,
            20,
            lambda: self._controllers.cleaned_up() and not judge.final_violations(),
        )
        for instance in self._instances.values():
            figures.exits[f"{instance.name}: {instance.process.terminate()}"] += 1
        never = created.keys() - judge.bound_at.keys() - judge.evicted
        figures.pods, figures.by_kind = len(created), self._load.by_kind
        figures.bound = len(created.keys() & judge.bound_at.keys())
        figures.evicted = len(judge.evicted)
        figures.violations = judge.final_violations() + [f"{created[u]} was lost" for u in never]
        figures.unfenced = list(self._record.unfenced)
        figures.bindings = len(self._record.bindings)
        figures.faults = self._faults.drawn + processes.done
        figures.bound_twice = [
            pod for pod, codes in self._plane.binds_by_pod().items() if codes[201] > 1
        ]
        for instance in self._instances.values():
            figures.exits.update({f"{instance.name}: {c}": n for c, n in instance.exits.items()})
            log = instance.process.log.read_text(errors="replace")
            figures.log_bytes += len(log)
            if self._logs is not None:
                (self._logs / f"{self._kind}-{instance.name}.log").write_text(log)
            figures.log_lines += len(log.splitlines())
            figures.tracebacks += [line for line in log.splitlines() if "Traceback" in line]
