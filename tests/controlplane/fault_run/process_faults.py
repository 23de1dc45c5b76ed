"""Faults of processes: killed, suspended, cut off from their disk, with a clock that jumps."""

from __future__ import annotations

import heapq
import itertools
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from envtest.control_plane import ControlPlane

from fault_run import steps, unsteady_extender
from fault_run.instances import LEASE_SECONDS, Instance
from fault_run.proxy import FaultProxy, Trap
from fault_run.record import RequestRecord
from fault_run.unsteady_extender import UnsteadyExtender
from proreus.workbench.bench.processes import Child

LONGEST_FREEZE_SECONDS = 2.5
"""Less than a Lease: what a frozen apiserver has read, it does when it goes on, and a successor
must not have taken over by then."""


class ProcessFaults:
    """Begins faults at random and ends them in time; ``tick`` is called from the main thread."""

    def __init__(
        self,
        rng: random.Random,
        plane: ControlPlane,
        proxy: FaultProxy,
        record: RequestRecord,
        instances: dict[str, Instance],
        mean_seconds: float,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._rng = rng
        self._plane = plane
        self._proxy = proxy
        self._record = record
        self._instances = instances
        self._mean_seconds = mean_seconds
        self._next = 0.0
        self._ends: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._frozen = False
        self._kinds: dict[str, tuple[float, Callable[[], bool]]] = {
            "leader killed": (2, lambda: self._kill(self._leader())),
            "standby killed": (1, lambda: self._kill(self._standby())),
            "killed at a step": (5, self._set_trap),
            "leader stopped by SIGTERM": (1, self._terminate_leader),
            "leader suspended past its Lease": (3, self._suspend_past_lease),
            "leader suspended shortly": (2, self._suspend_shortly),
            "apiserver killed": (1, self._kill_apiserver),
            "apiserver frozen": (3, self._freeze_apiserver),
            "etcd compacted": (2, self._compact),
            "log on a full disk": (2, self._fill_disk),
        }

    def add_extender(self, extender: UnsteadyExtender) -> None:
        """Let an extender fail now and then."""

        def fail() -> bool:
            extender.mode = self._rng.choice(unsteady_extender.MODES)
            self._later(
                self._rng.uniform(1, 4), lambda: setattr(extender, "mode", unsteady_extender.UP)
            )
            return True

        self._kinds["extender away"] = (2, fail)

    def add_plugin(self, plugin: Child) -> None:
        """Let an out-of-process plugin end or hang now and then."""

        def fail() -> bool:
            if not plugin.running:
                return False
            if self._rng.random() < 0.5:
                plugin.kill()
                self._later(self._rng.uniform(1, 4), plugin.start)
            else:
                plugin.signal(signal.SIGSTOP)
                self._later(self._rng.uniform(1, 4), lambda: plugin.signal(signal.SIGCONT))
            return True

        self._kinds["plugin away"] = (2, fail)

    def add_clock(self, offset: Path) -> None:
        """Let the clock of one instance jump."""

        def jump() -> bool:
            offset.write_text(f"{self._rng.choice((-3000, -60, -5, 0, 5, 60, 3600, 40000)):+d}s")
            return True

        self._kinds["clock set"] = (2, jump)

    def tick(self, now: float, *, begin: bool) -> None:
        """End what is due, start again what has ended, and perhaps begin a fault."""
        while self._ends and self._ends[0][0] <= now:
            heapq.heappop(self._ends)[2]()
        for instance in self._instances.values():
            instance.supervise(now)
        if not self._plane.apiserver.running:
            self._frozen = False
            self._plane.apiserver.start()
        if begin and now >= self._next:
            self._next = now + self._rng.expovariate(1 / self._mean_seconds)
            kinds = {name: weight for name, (weight, _) in self._kinds.items()}
            [name] = self._rng.choices(list(kinds), list(kinds.values()))
            if self._kinds[name][1]():
                self.done[name] += 1

    def end_all(self) -> None:
        """End everything at once: nothing is suspended, no trap is set."""
        self._proxy.clear_traps()
        while self._ends:
            heapq.heappop(self._ends)[2]()

    def _later(self, seconds: float, end: Callable[[], None]) -> None:
        heapq.heappush(self._ends, (time.monotonic() + seconds, next(self._numbers), end))

    def _leader(self) -> Instance | None:
        found = self._instances.get(self._record.holder or "")
        return found if found is not None and found.process.running else None

    def _standby(self) -> Instance | None:
        leader = self._leader()
        others = [one for one in self._instances.values() if one is not leader]
        return others[0] if leader and others and others[0].process.running else None

    @staticmethod
    def _kill(instance: Instance | None) -> bool:
        if instance is None:
            return False
        instance.signal(signal.SIGKILL)
        return True

    def _terminate_leader(self) -> bool:
        leader = self._leader()
        if leader is None or leader.suspended:
            return False
        leader.signal(signal.SIGTERM)
        return True

    def _set_trap(self) -> bool:
        """Kill the scheduler or, more rarely, the apiserver, before or after a step's request."""
        step = self._rng.choice(steps.KILL_STEPS)
        after = self._rng.random() < 0.5
        of_apiserver = self._rng.random() < 0.15
        name = f"{'apiserver' if of_apiserver else 'scheduler'} killed "
        name += f"{'after' if after else 'before'} {step}"

        def spring(instance: str) -> None:
            self.done[name] += 1
            if of_apiserver:
                self._plane.apiserver.signal(signal.SIGKILL)
            else:
                self._instances[instance].signal(signal.SIGKILL)

        self._proxy.set_trap(Trap(step, after, spring))
        return False  # it counts when it springs

    def _suspend(self, seconds: float) -> bool:
        leader = self._leader()
        if leader is None or leader.suspended:
            return False
        leader.suspend()
        self._later(seconds, leader.resume)
        return True

    def _suspend_past_lease(self) -> bool:
        return self._suspend(LEASE_SECONDS + self._rng.uniform(1, 3))

    def _suspend_shortly(self) -> bool:
        return self._suspend(self._rng.uniform(0.2, 2))

    def _kill_apiserver(self) -> bool:
        self._plane.apiserver.signal(signal.SIGKILL)
        return True

    def _freeze_apiserver(self) -> bool:
        if self._frozen:
            return False
        self._frozen = True
        self._plane.freeze_apiserver()
        self._later(self._rng.uniform(0.3, LONGEST_FREEZE_SECONDS), self._thaw)
        return True

    def _thaw(self) -> None:
        if self._frozen and self._plane.apiserver.running:
            self._plane.thaw_apiserver()
        self._frozen = False

    def _compact(self) -> bool:
        """Compact etcd; every other time the apiserver forgets its history as well."""
        self._plane.compact_etcd()
        if self._rng.random() < 0.5:
            self._plane.apiserver.signal(signal.SIGKILL)
        return True

    def _fill_disk(self) -> bool:
        instance = self._rng.choice(list(self._instances.values()))
        if not instance.process.running:
            return False
        instance.limit_log(True)
        self._later(self._rng.uniform(1, 4), lambda: instance.limit_log(False))
        return True
