"""A queue in virtual time, and short ways to make what goes into it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from proreus.base.clock import FakeClock
from proreus.base.kubernetes_version import DEFAULT_VERSION, V1_37, KubernetesVersion
from proreus.base.metrics import SchedulerMetrics
from proreus.engine.queue import SchedulingQueue
from proreus.engine.queue.pod_group_queue import PodGroupQueue
from proreus.engine.queue.sub_queues import QueueOptions
from proreus.framework.event_registrations import EventRegistration, PreEnqueue
from proreus.framework.events import ClusterEvent
from proreus.framework.pod_events import PodEvents
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedPodGroupInfo
from proreus.framework.status import Status
from proreus.framework.workload_forest import Group, WorkloadForest
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import Pod, PodSchedulingGroup, PodSpec, PodStatus, SchedulingGate
from proreus.objects.scheduling import (
    CompositePodGroup,
    CompositePodGroupSpec,
    PodGroup,
    PodGroupSpec,
)

PROFILE = "default-scheduler"
START = 1000.0


@dataclass
class Profile:
    """A profile made by hand."""

    pre_enqueue: dict[str, PreEnqueue] = field(default_factory=dict)
    registrations: list[EventRegistration] = field(default_factory=list)
    group_wide: frozenset[str] = frozenset()

    def register(self, plugin: str, resource: str, action: int, hint: Any = None) -> None:
        self.registrations.append((plugin, ClusterEvent(resource, action, hint)))


def make_pod(
    name: str = "a",
    *,
    priority: int = 0,
    uid: str = "",
    labels: dict[str, str] | None = None,
    pre_enqueue_plugins: tuple[str, ...] = (),
    profile: str = PROFILE,
    nominated: str = "",
    node: str = "",
    group: str = "",
) -> PodInfo:
    return PodInfo(
        Pod(
            metadata=ObjectMeta(
                name=name, namespace="default", uid=uid or f"uid-{name}", labels=labels or {}
            ),
            spec=PodSpec(
                scheduler_name=profile,
                priority=priority,
                node_name=node,
                scheduling_group=PodSchedulingGroup(pod_group_name=group) if group else None,
                scheduling_gates=tuple(SchedulingGate(name=gate) for gate in pre_enqueue_plugins),
            ),
            status=PodStatus(nominated_node_name=nominated),
        )
    )


def make_pod_group(
    name: str = "g", *, parent: str | None = None, priority: int = 0, uid: str = "", age: int = 0
) -> PodGroup:
    return PodGroup(
        metadata=_group_metadata(name, uid, age),
        spec=PodGroupSpec(priority=priority, parent_composite_pod_group_name=parent),
    )


def make_composite(
    name: str = "c", *, parent: str | None = None, priority: int = 0, uid: str = "", age: int = 0
) -> CompositePodGroup:
    return CompositePodGroup(
        metadata=_group_metadata(name, uid, age),
        spec=CompositePodGroupSpec(priority=priority, parent_composite_pod_group_name=parent),
    )


def _group_metadata(name: str, uid: str, age: int) -> ObjectMeta:
    created = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) - datetime.timedelta(seconds=age)
    return ObjectMeta(
        name=name, namespace="default", uid=uid or f"uid-{name}", creation_timestamp=created
    )


def scheduling_gates(pod: PodInfo) -> Status | None:
    return Status.unresolvable("gated") if pod.pod.spec.scheduling_gates else None


def by_priority(queued: QueuedPodInfo) -> Any:
    return (-queued.priority, queued.timestamp)


def names(pods: list[QueuedPodInfo]) -> list[str]:
    return [queued.info.name for queued in pods]


class QueueHarness:
    """A queue, its clock, its profile, and what the pod lister knows."""

    pod = staticmethod(make_pod)

    def __init__(
        self,
        version: KubernetesVersion = DEFAULT_VERSION,
        forest: WorkloadForest | None = None,
        **options: Any,
    ) -> None:
        """``forest``: pods of groups wait as one."""
        self.forest = forest
        self.clock = FakeClock(START)
        self.profile = Profile(pre_enqueue={"SchedulingGates": scheduling_gates})
        self.listed: dict[str, Pod] = {}
        self.wakes = 0
        self.metrics = SchedulerMetrics(version=version)
        if version == V1_37:
            options = {
                "flushes_gated_pods": True,
                "bookkeeping_of_1_37": True,
                "events": PodEvents(target_pods=True),
                **options,
            }
        self._options = QueueOptions(**options)
        self._queue: SchedulingQueue | None = None

    @property
    def queue(self) -> SchedulingQueue:
        """The queue; made on first use, so that a test may register before."""
        if self._queue is None:
            self._queue = SchedulingQueue(
                clock=self.clock,
                sort_key=by_priority,
                profiles={PROFILE: self.profile},
                pod_lister=self.listed.get,
                options=self._options,
                metrics=self.metrics,
                forest=self.forest,
            )
            self._queue.on_ready = self._count_wake
        return self._queue

    def _count_wake(self) -> None:
        self.wakes += 1

    @property
    def pod_groups(self) -> PodGroupQueue:
        """The part of the queue for pods of groups."""
        assert self.queue.pod_groups is not None
        return self.queue.pod_groups

    def add_groups(self, *groups: Group) -> None:
        for group in groups:
            self.pod_groups.add_group(group)

    def pop_group(self) -> QueuedPodGroupInfo:
        group = self.queue.pop()
        assert isinstance(group, QueuedPodGroupInfo)
        return group

    def end_attempt(self, group: QueuedPodGroupInfo, status: Status | None, *failed: str) -> None:
        """End the attempt of a group: pods in ``failed`` were rejected, the others are bound."""
        for queued in group.queued_pods:
            if queued.info.name in failed:
                queued.unschedulable_plugins = {"Fit"}
                self.queue.add_unschedulable(queued)
            else:
                self.queue.done(queued.uid)
        self.pod_groups.add_attempted(group, status)
        self.queue.validate()

    def add(self, *pods: PodInfo) -> None:
        for pod in pods:
            self.listed[pod.key] = pod.pod
            self.queue.add(pod)

    def pop(self) -> QueuedPodInfo:
        queued = self.queue.pop()
        assert isinstance(queued, QueuedPodInfo)
        return queued

    def reject(
        self, queued: QueuedPodInfo, *plugins: str, pending: tuple[str, ...] = ()
    ) -> QueuedPodInfo:
        """End an attempt as the failure handler does; without plugins, by an error."""
        queued.unschedulable_plugins = {*plugins, *pending}
        queued.pending_plugins = set(pending)
        self.queue.add_unschedulable(queued)
        self.queue.validate()
        return queued

    def rejected(self, pod: PodInfo, *plugins: str, pending: tuple[str, ...] = ()) -> QueuedPodInfo:
        """Add a pod, pop it and reject it."""
        self.add(pod)
        queued = self.pop()
        assert queued.info is pod
        return self.reject(queued, *plugins, pending=pending)

    def places(self) -> dict[str, list[str]]:
        """Names of pods in each place that is not empty."""
        found = {
            "active": names(self.queue.active_pods()),
            "backoff": names(self.queue.backoff_pods()),
            "unschedulable": names(self.queue.unschedulable_pods()),
            "gated": names(self.queue.gated_pods()),
        }
        if (groups := self.queue.pod_groups) is not None:
            found["incomplete"] = names([*groups.incomplete])
            found["pending"] = names([*groups.pending])
        return {place: pods for place, pods in found.items() if pods}

    def incoming(self) -> dict[tuple[str, ...], float]:
        """Entries by (queue, event)."""
        return dict(self.metrics.queue_incoming_pods_total.values())

    def incoming_entities(self, kind: str = "pod") -> dict[tuple[str, ...], float]:
        """Entries of entities by (queue, event)."""
        return {
            labels[:2]: value
            for labels, value in self.metrics.queue_incoming_entities_total.values()
            if labels[2] == kind
        }

    def entities(self) -> dict[str, float]:
        """The gauge of queued pods that are no members of a group, by queue."""
        return {
            queue: value
            for (queue, kind), value in self.metrics.queued_entities.values()
            if kind == "pod"
        }

    def per_plugin(self) -> dict[str, float]:
        """The gauge of unschedulable pods by plugin, without zeros."""
        return {
            labels[0]: value for labels, value in self.metrics.unschedulable_pods.values() if value
        }


@pytest.fixture
def harness() -> QueueHarness:
    return QueueHarness()


@pytest.fixture
def make_harness() -> type[QueueHarness]:
    return QueueHarness


@pytest.fixture
def grouped() -> QueueHarness:
    """A queue of 1.37 with pod groups."""
    return QueueHarness(V1_37, WorkloadForest(composite=True))


@pytest.fixture
def pod_group() -> Callable[..., PodGroup]:
    return make_pod_group


@pytest.fixture
def composite() -> Callable[..., CompositePodGroup]:
    return make_composite


@pytest.fixture
def pod() -> Callable[..., PodInfo]:
    return make_pod
