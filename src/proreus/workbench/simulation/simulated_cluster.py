"""Runs the scheduler on a scenario until it has nothing left to do, in virtual time.

    load the cluster as it is ─► measure ─► make the changes, as watch events ─► schedule ─► measure

The scheduler is the live one, with its queue, back-offs, preemption and Permit, over an API in
memory. Only what would drive it is simulated: the clock moves on when no pod can be tried now,
controllers create preempted pods anew (``Scenario``), claims are made for pods (``claims``), and
volumes are provisioned as soon as a node is chosen for them (``volumes``).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from proreus.base.clock import Clock
from proreus.base.feature_gates import FeatureGates
from proreus.config.types import SchedulerConfiguration
from proreus.engine.cycles.attempt import Attempt, Failure
from proreus.engine.runtime.registry import Registry
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import Verdicts
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.objects.kinds import PODS
from proreus.objects.meta import Resource, controller_of, key_of
from proreus.objects.pod import POD_SCHEDULED, Pod, condition_of, is_terminal
from proreus.objects.requests import PodResourcesOptions
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.workbench.simulation.claims import ClaimController
from proreus.workbench.simulation.results import (
    NodesRejected,
)
from proreus.workbench.simulation.scenario import recreated
from proreus.workbench.simulation.utilisation import Shapes, shapes_of
from proreus.workbench.simulation.volumes import VolumeController

_BATCH = 32
"""The number of pods that are tried before their bindings run, since the live loop leaves them a
turn too.
"""

_PATIENCE_SECONDS = 120.0
"""Virtual time without a binding or a preemption after which failing pods are given up."""

_LONGEST_WAIT_SECONDS = 1200.0
"""The same while pods wait in Permit or PreBind, which have limits of ten minutes and more."""

Progress = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Settings:
    """The deciding parts: a valid configuration, the plugins that it names, gates, and a seed.

    ``progress`` is called with the number of pods that have been tried, and of all.
    """

    configuration: SchedulerConfiguration
    registry: Registry
    feature_gates: FeatureGates
    seed: int = 0
    progress: Progress = _silent


class SimulatedCluster:
    """A scheduler over objects in memory, and the results of its work.

    ``recreates_victims``: whether controllers create preempted pods anew. Needs a running
    ``VirtualTimeLoop``. Raises ``ConfigError`` for a configuration that no
    scheduler can be built from.
    """

    def __init__(self, settings: Settings, recreates_victims: bool = True) -> None:
        self._settings = settings
        self._recreates_victims = recreates_victims
        self._cluster = OfflineCluster(
            settings.configuration,
            settings.registry,
            settings.feature_gates,
            OfflineOptions(seed=settings.seed),
        )
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.use_clock(self._cluster.clock)
        self.api = self._cluster.api
        self.clock: Clock = self._cluster.clock
        self.assembly = self._cluster.assembly
        self.scheduler = self._cluster.scheduler
        self.table = self.scheduler.cache.table
        self.pods: Mapping[str, Pod] = self.api.store(PODS)
        self._failures = _FailureLog()
        self.scheduler.observe_failures(self._failures)
        self._volumes = VolumeController(self.api)
        self._claims = ClaimController(self.api)
        self._deleted: list[Pod] = []
        self._ignores_deletions = False
        self.victims: list[tuple[Pod, str]] = []
        """Preempted pods, and the preemptor of each, by key."""
        self._keys_by_uid: dict[str, str] = {}
        self._events_seen = 0
        self.arrivals: dict[str, None] = {}
        """The keys of all pods that had to be placed, in the order of their arrival."""
        self._attempted: set[str] = set()
        self.decision_seconds: list[float] = []
        """The time of each attempt, on the wall clock."""
        self._started = self._cluster.clock.now()
        self.api.on_change(PODS, self._pod_changed)

    # ---- objects -------------------------------------------------------------------------------

    async def load(self, objects: ClusterObjects) -> None:
        """Deliver the objects of a cluster as the first lists of informers would."""
        pods = []
        for resource, obj in objects:
            if resource is PODS:
                pods.append(obj)
            else:
                self.api.put(resource, obj)
        for pod in pods:
            self.put_pod(pod)
        await self._cluster.settle()

    async def change(self, before: ClusterObjects, after: ClusterObjects) -> None:
        """Deliver the difference as watch events would: removed pods first, new ones last."""
        removed, written = _difference(before, after)
        for resource, key in removed:
            if resource is PODS:
                self.remove_pod(key)
            else:
                self.api.remove(resource.kind, key)
        for resource, obj in written:
            if resource is PODS:
                self.put_pod(obj)
            else:
                self.api.put(resource, obj)
        await self._cluster.settle()

    def put_pod(self, pod: Pod) -> None:
        """Add a pod; one that waits for a node is an arrival."""
        if is_terminal(pod):
            return
        if not pod.spec.node_name and pod.metadata.deletion_timestamp is None:
            self.arrivals[key_of(pod)] = None
            self._keys_by_uid[pod.metadata.uid] = key_of(pod)
            pod = self._claims.prepare(pod)
        self.api.put(PODS, pod)

    def remove_pod(self, key: str) -> None:
        """Delete a pod, as a user would: nobody creates it anew."""
        pod = self.pods.get(key)
        if pod is None:
            return
        self._ignores_deletions = True
        self.api.remove(PODS.kind, key)
        self._ignores_deletions = False
        self._claims.release(pod)
        self.arrivals.pop(key, None)

    def node_of(self, key: str) -> str:
        """Return the node that a pod is bound to, or ""."""
        pod = self.pods.get(key)
        return "" if pod is None else pod.spec.node_name

    def shapes_with(self, more: Iterable[Pod]) -> Shapes:
        """Return the requests of the cluster's pods, and of more."""
        options = PodResourcesOptions.of(self._settings.feature_gates)
        present = {pod.key: pod for pod in self.scheduler.cache.pods()}
        new = [PodInfo(pod, options) for pod in more if key_of(pod) not in present]
        return shapes_of(pod.requests.amounts for pod in (*present.values(), *new))

    def rejections(self, key: str) -> tuple[NodesRejected, ...]:
        """Return the numbers of nodes that plugins rejected at a pod's last attempt."""
        return self._failures.rejections(key)

    def message(self, key: str) -> str:
        """Return the text of a pod's PodScheduled condition, or ""."""
        pod = self.pods.get(key)
        condition = None if pod is None else condition_of(pod, POD_SCHEDULED)
        return "" if condition is None else condition.message

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None and old is not None and not self._ignores_deletions:
            self._deleted.append(old)

    @property
    def virtual_seconds(self) -> float:
        """The time that has passed on the simulated clock."""
        return self._cluster.clock.now() - self._started

    async def pass_time(self, seconds: float) -> None:
        """Let time pass on the simulated clock, and all that happens meanwhile but scheduling."""
        await self._cluster.pass_time(seconds)
        await self._after_bindings()

    # ---- scheduling ----------------------------------------------------------------------------

    async def schedule(self) -> None:
        """Schedule until every pod has a node, or nothing but an event from outside would help."""
        quiet = 0.0
        progress = -1
        while True:
            await self.schedule_now()
            done = len(self.api.bound) + len(self.api.deleted)
            quiet = 0.0 if done != progress else quiet + 1.0
            progress = done
            if not self._anything_pending() or quiet > self._patience():
                return
            await self.pass_time(1.0)

    async def schedule_now(self) -> None:
        """Schedule until no pod can be tried without time passing."""
        queue, scheduler = self.scheduler.queue, self.scheduler
        progress, total = self._settings.progress, len(self.arrivals)
        while True:
            tried = 0
            while tried < _BATCH and (queued := queue.pop()) is not None:
                began = perf_counter()
                # kube-scheduler brings its order of nodes up to date in every cycle.
                scheduler.cache.node_order()
                await scheduler.schedule_one(queued)
                self.decision_seconds.append(perf_counter() - began)
                self._attempted.add(queued.key)
                tried += 1
            await self._after_bindings()
            if tried:
                progress(min(len(self._attempted), total), total)
            else:
                return

    async def _after_bindings(self) -> None:
        """Let bindings end, and do the work of controllers about them."""
        await self._cluster.settle()
        while self._deleted or self._volumes.pending:
            preemptors = self._preemptors()
            deleted, self._deleted = self._deleted, []
            for pod in deleted:
                self.victims.append((pod, preemptors.get(key_of(pod), "")))
                self._claims.release(pod)
                if self._recreates_victims and controller_of(pod.metadata) is not None:
                    self.put_pod(recreated(pod))
            self._volumes.reconcile()
            await self._cluster.settle()

    def _preemptors(self) -> dict[str, str]:
        """Return the preemptor of each pod that was preempted since the last call, by keys."""
        events = self._cluster.events.events[self._events_seen :]
        self._events_seen += len(events)
        found = {}
        for key, reason, note in events:
            if reason == "Preempted":
                # "Preempted by pod UID on node NAME": an Event names its object by UID alone.
                uid = note.partition(" on node ")[0].rpartition(" ")[2]
                found[key] = self._keys_by_uid.get(uid, uid)
        return found

    def _anything_pending(self) -> bool:
        scheduler = self.scheduler
        return bool(
            scheduler.queue.poppable
            or scheduler.queue.backoff_pods()
            or len(scheduler.waiting_pods)
            or scheduler.cache.assumed_count
        )

    def _patience(self) -> float:
        scheduler = self.scheduler
        waits = len(scheduler.waiting_pods) or scheduler.cache.assumed_count
        return _LONGEST_WAIT_SECONDS if waits else _PATIENCE_SECONDS


class _FailureLog:
    """The nodes that rejected each pod at its last attempt. Implements ``FailureObserver``."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[NodesRejected, ...]] = {}

    def on_failure(self, attempt: Attempt, failure: Failure) -> None:
        """Keep the counts, by plugin and reason."""
        fit = failure.fit_error
        self._last[attempt.pod.key] = () if fit is None else _rejections(fit.diagnosis.complete())

    def rejections(self, key: str) -> tuple[NodesRejected, ...]:
        """Return the counts of a pod's last attempt, the highest first."""
        return self._last.get(key, ())


def _rejections(verdicts: Verdicts) -> tuple[NodesRejected, ...]:
    counted: Counter[tuple[str, str]] = Counter()
    for status, count in verdicts.counts().items():
        if status.plugin or status.reasons:
            for reason in status.reasons or ("",):
                counted[status.plugin, reason] += count
    found = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    return tuple(
        NodesRejected(plugin=plugin, reason=reason, nodes=count)
        for (plugin, reason), count in found
    )


def _difference(
    before: ClusterObjects, after: ClusterObjects
) -> tuple[list[tuple[Resource[Any], str]], list[tuple[Resource[Any], Any]]]:
    """Return keys to remove, and objects to write: changed and new ones, new pods last."""
    removed: list[tuple[Resource[Any], str]] = []
    written: list[tuple[Resource[Any], Any]] = []
    arriving: list[tuple[Resource[Any], Any]] = []
    for resource, obj in before:
        now = after.of(resource).get(key_of(obj))
        if now is None or now.metadata.uid != obj.metadata.uid:
            removed.append((resource, key_of(obj)))
    for resource, obj in after:
        old = before.of(resource).get(key_of(obj))
        if old is not obj:
            (arriving if resource is PODS else written).append((resource, obj))
    # Nodes and all else first, then pods: removed nodes must be empty when they go.
    removed.sort(key=lambda one: one[0] is not PODS)
    return removed, written + arriving
