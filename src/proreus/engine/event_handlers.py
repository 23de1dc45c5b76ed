"""From watch events to the cache and the queue: kube-scheduler's table of event handlers.

One method a row of the table: kind by (assigned, ours, assumed). All of it is sync and runs in the
same turn of the event loop in which the informer's store changed.

    pod with a node             ─► cache (confirms an assumption), then queue.move_all
    pod of ours without a node  ─► queue.add / update / delete
    node                        ─► cache, then queue.move_all (on delete: the other way round)
    group of pods               ─► queue, which keeps the forest of groups, then queue.move_all
    any other registered kind   ─► queue.move_all
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from time import perf_counter
from typing import Any

from proreus.base.logs import logger
from proreus.base.metrics import Histogram, SchedulerMetrics
from proreus.engine.cache.cache import Cache, CacheError
from proreus.engine.cluster_events import as_assigned, node_events, pod_events
from proreus.engine.guards.overcommit_watch import OvercommitWatch
from proreus.engine.queue.scheduling_queue import SchedulingQueue
from proreus.engine.runtime.waiting_pods import WaitingPods
from proreus.framework.events import (
    ADD,
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    ASSIGNED_POD_UPDATE,
    DELETE,
    NODE_ADD,
    NODE_DELETE,
    UPDATE,
    UPDATE_POD_LABEL,
    ClusterEvent,
)
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_events import DEFAULT_POD_EVENTS, PodEvents
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.workload_forest import Group
from proreus.objects.meta import key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod, priority_of
from proreus.objects.requests import DEFAULT_RESOURCES_OPTIONS, PodResourcesOptions

log = logger(__name__)


class _Timed:
    """Observes the duration of handlers, by event."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._family = metrics.event_handling_duration_seconds
        self._children: dict[str, Histogram] = {}

    def observe(self, event: ClusterEvent, started: float) -> None:
        child = self._children.get(event.label)
        if child is None:
            child = self._children[event.label] = self._family.labels(event.label)
        child.observe(perf_counter() - started)


class _FirstListHandlers(ABC):
    """Handlers that take the additions of a first list for one event of the queue."""

    _queue: SchedulingQueue

    @abstractmethod
    def on_add(self, obj: Any) -> None:
        """An object appeared."""

    def on_add_all(self, objects: Sequence[Any]) -> None:
        """All these objects appeared: the first list."""
        with self._queue.first_list():
            for obj in objects:
                self.on_add(obj)


class PodHandlers(_FirstListHandlers):
    """Applies added, updated and deleted pods. A handler of the pod informer."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        waiting_pods: WaitingPods,
        scheduler_names: Collection[str],
        metrics: SchedulerMetrics,
        resources_options: PodResourcesOptions = DEFAULT_RESOURCES_OPTIONS,
        events: PodEvents = DEFAULT_POD_EVENTS,
        pod_groups: bool = False,
        announces_group_pods: bool = False,
    ) -> None:
        """``pod_groups``: gate GenericWorkload. ``announces_group_pods``: a new pod is an event
        too, which may complete a gang (gate GangScheduling, since 1.37 GenericWorkload)."""
        self._groups = cache.pod_group_states if pod_groups else None
        self._announces_group_pods = announces_group_pods
        self._cache = cache
        self._queue = queue
        self._waiting_pods = waiting_pods
        self._scheduler_names = scheduler_names
        self._timed = _Timed(metrics)
        self._resources_options = resources_options
        self._events = events
        self.overcommit_watch: OvercommitWatch | None = None

    def on_add(self, pod: Pod) -> None:
        """A pod appeared."""
        started = perf_counter()
        self._log(3, "Add", pod)
        info = PodInfo(pod, self._resources_options)
        if pod.spec.node_name:
            self._add_assigned(info)
            self._timed.observe(ASSIGNED_POD_ADD, started)
        elif self.responsible_for_pod(pod):
            if self._groups is not None:
                self._groups.add(info)
            self._add_to_queue(info, started)

    def on_update(self, old: Pod, new: Pod) -> None:
        """A pod changed."""
        # The watch missed the deletion: another pod has taken the name.
        if old.metadata.uid != new.metadata.uid:
            self.on_delete(old, False)
            self.on_add(new)
            return
        started = perf_counter()
        if bool(old.spec.node_name) == bool(new.spec.node_name):
            self._log(4, "Update", new)
        else:
            self._log(3, "Delete", old)
            self._log(3, "Add", new)
        known = self._known_info(new)
        info = PodInfo(new, self._resources_options, known)
        if old.spec.node_name:
            self._update_assigned(old, info, started)
        elif new.spec.node_name:
            # Bound since: by us, which confirms the assumption, or by another scheduler, and then
            # the pod may still wait in the queue.
            self._add_assigned(info)
            if self.responsible_for_pod(new):
                self._queue.delete(info)
                self._move_to_unused_nomination(old, new.spec.node_name)
            self._timed.observe(ASSIGNED_POD_ADD, started)
        elif self.responsible_for_pod(new):
            self._update_pending(old, info, known)
            self._timed.observe(self._events.unscheduled_update, started)

    def on_delete(self, pod: Pod, final_state_unknown: bool = False) -> None:
        """A pod is gone, or has finished."""
        started = perf_counter()
        self._log(3, "Delete", pod)
        # Of a pod whose deletion the watch missed only an old version is known: it may have been
        # bound since, so both sides are cleaned up.
        assigned = bool(pod.spec.node_name)
        if assigned or final_state_unknown:
            self._remove_assigned(pod, final_state_unknown)
            self._timed.observe(ASSIGNED_POD_DELETE, started)
        if self.responsible_for_pod(pod) and (not assigned or final_state_unknown):
            self._delete_pending(PodInfo(pod, self._resources_options, self._known_info(pod)))
            self._timed.observe(self._events.unscheduled_delete, started)

    def _log(self, level: int, what: str, pod: Pod) -> None:
        if level > log.threshold:
            return
        if pod.spec.node_name or self.responsible_for_pod(pod):
            kind = "scheduled" if pod.spec.node_name else "unscheduled"
            log.v(level).info(f"{what} event for {kind} pod", pod=key_of(pod))

    def use_scheduler_names(self, names: Collection[str], pods: Iterable[Pod]) -> None:
        """Schedule the pods of other schedulerNames from now on; ``pods`` are all pods."""
        before, self._scheduler_names = self._scheduler_names, names
        for pod in pods:
            name = pod.spec.scheduler_name
            # Assigned pods count on their nodes whoever schedules them.
            if pod.spec.node_name or (name in before) == (name in names):
                continue
            info = PodInfo(pod, self._resources_options)
            if name in before:
                self._queue.delete(info)
                if self._groups is not None:
                    self._groups.remove(pod)
            elif not self._cache.is_assumed(info.uid):
                self.on_add(pod)

    def responsible_for_pod(self, pod: Pod) -> bool:
        """Return whether a profile of ours schedules the pod."""
        return pod.spec.scheduler_name in self._scheduler_names

    def is_queued_on_node(self, pod: Pod) -> bool:
        """Return whether a pod has a node and is in the queue all the same."""
        return False

    def _known_info(self, pod: Pod) -> PodInfo | None:
        """Return the info of the version of a pod that the cache or the queue has, if any."""
        known = self._cache.get_pod(pod.metadata.uid)
        if known is not None:
            return known
        queued = self._queue.get(key_of(pod))
        return None if queued is None else queued.info

    # ---- assigned ------------------------------------------------------------------------------

    def _add_assigned(self, info: PodInfo) -> None:
        watch = self.overcommit_watch
        confirmed = watch is not None and self._cache.is_assumed(info.uid)
        try:
            self._cache.add_pod(info)
        except CacheError as error:
            log.error("Scheduler cache AddPod failed", err=error, pod=info.key)
        self._move(ASSIGNED_POD_ADD, None, info.pod)
        # The usual case is our own binding, on a node that is all right.
        if watch is not None and not (confirmed and not watch.episodes):
            watch.pod_assigned(info, confirmed)

    def _update_assigned(self, old: Pod, new: PodInfo, started: float) -> None:
        before = self._cache.get_pod(new.uid) or PodInfo(old, self._resources_options, new)
        try:
            self._cache.update_pod(new)
        except CacheError as error:
            log.error("Scheduler cache UpdatePod failed", err=error, pod=new.key)
        self._timed.observe(ASSIGNED_POD_UPDATE, started)
        # Compared with the cached version, not ``old``: an assumed pod may differ from both.
        for event in pod_events(before, new, self._events):
            moving = perf_counter()
            self._move(event, old, new.pod)
            self._timed.observe(event, moving)

    def _remove_assigned(self, pod: Pod, final_state_unknown: bool) -> None:
        try:
            self._cache.remove_pod(pod)
        except CacheError as error:
            if not final_state_unknown:
                log.error("Scheduler cache RemovePod failed", err=error, pod=pod.metadata.name)
        self._move(ASSIGNED_POD_DELETE, pod, None)

    # ---- pending -------------------------------------------------------------------------------

    def _add_to_queue(self, info: PodInfo, started: float) -> None:
        event = self._events.unscheduled_add
        self._queue.add(info)
        # A new member may complete a gang whose other members were rejected for its lack.
        if self._announces_group_pods:
            self._move(event, None, info.pod)
        self._timed.observe(event, started)

    def _update_pending(self, old: Pod, info: PodInfo, known: PodInfo | None) -> None:
        new = info.pod
        # A resync repeats what is known. Offline objects have no version and always count.
        if old.metadata.resource_version == new.metadata.resource_version != "":
            return
        if self._groups is not None:
            self._groups.add(info)
        if self._cache.is_assumed(info.uid):
            # With volumes to wait for, its status names the node long before it is bound.
            if old.status.nominated_node_name != new.status.nominated_node_name:
                self._move_to_unused_nomination(old, self._cache.node_of(info.uid))
            if new.metadata.deletion_timestamp and not old.metadata.deletion_timestamp:
                self._delete_assumed(info)
            return
        before = known
        if before is None or before.pod is not old:
            before = PodInfo(old, self._resources_options, info)
        self._queue.update(before, info, pod_events(before, info, self._events))
        was = old.status.nominated_node_name
        if was and was != new.status.nominated_node_name:
            self._move_less_important(old)
        elif was and old.metadata.labels != new.metadata.labels:
            self._move_less_important(old, new)

    def _delete_pending(self, info: PodInfo) -> None:
        # The nomination may not be in the status yet, or never: its patch may be refused.
        nominated = self._queue.nominator.nominated_node_of(info.uid)
        self._queue.delete(info)
        # After the queue, as in kube-scheduler, which runs PreEnqueue for the rest of its group.
        if self._groups is not None:
            self._groups.remove(info.pod)
        if self._cache.is_assumed(info.uid):
            self._delete_assumed(info)
        elif info.pod.status.nominated_node_name:
            self._move_less_important(info.pod)
        elif nominated:
            self._move_less_important(as_assigned(info.pod, nominated))

    def _delete_assumed(self, info: PodInfo) -> None:
        """Forget the assumption of a pod that is deleted before it is bound."""
        cached = self._cache.get_pod(info.uid) or info
        node_name = self._cache.node_of(info.uid)
        waiting = self._waiting_pods.get(info.uid)
        # A pod on Permit has a binding cycle that undoes Reserve and the assumption in order.
        if waiting is not None:
            waiting.reject("", "removed")
        else:
            try:
                self._cache.forget(cached, node_name)
            except CacheError as error:
                operation = "RemoveAssumedPod" if self._cache.removes_assumed_pods else "ForgetPod"
                log.error(f"Scheduler cache {operation} failed", err=error, pod=info.key)
        self._move(ASSIGNED_POD_DELETE, as_assigned(cached.pod, node_name), None)

    def _move_less_important(self, pod: Pod, new: Pod | None = None) -> None:
        """Wake the pods that had to respect a nomination which is gone, or other labels now."""
        priority = priority_of(pod)
        event = ASSIGNED_POD_DELETE if new is None else self._events.assigned[UPDATE_POD_LABEL]
        self._move(event, pod, new, lambda other: other.info.priority <= priority)

    def _move_to_unused_nomination(self, pod: Pod, node_name: str) -> None:
        """Wake the pods for which the node has room that a pod was nominated to.

        ``node_name``: the node that it has instead; nobody is woken if it is the same.
        """
        nominated = pod.status.nominated_node_name
        table, priority = self._cache.table, priority_of(pod)
        if nominated == node_name or nominated not in table.rows:
            return

        def has_room(other: QueuedPodInfo) -> bool:
            # Pods may be looked at later: the node may be gone by then, or have another row.
            row = table.rows.get(nominated)
            return (
                row is not None
                and other.info.priority <= priority
                and _has_room(table[row], other.info)
            )

        self._move(ASSIGNED_POD_DELETE, pod, None, has_room)

    def _move(
        self,
        event: ClusterEvent,
        old: Pod | None,
        new: Pod | None,
        precheck: Callable[[QueuedPodInfo], bool] | None = None,
    ) -> None:
        self._queue.move_all_to_active_or_backoff(event, old, new, precheck)


def _has_room(node: NodeInfo, pod: PodInfo) -> bool:
    """Return whether a node has room for a pod, apart from resources that devices may provide."""
    if len(node.pods) >= node.allowed_pod_number:
        return False
    allocatable, requested = node.allocatable, node.requested
    return all(
        amount <= allocatable[name] - requested.get(name, 0)
        for name, amount in pod.requests.amounts.items()
        if name in allocatable
    )


class NodeHandlers(_FirstListHandlers):
    """Applies added, updated and deleted nodes. A handler of the node informer."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        metrics: SchedulerMetrics,
        preemption_policy: bool = False,
    ) -> None:
        """``preemption_policy``: changes of ``spec.podPreemptionPolicy`` are events."""
        self._cache = cache
        self._queue = queue
        self._preemption_policy = preemption_policy
        self._timed = _Timed(metrics)

    def on_add(self, node: Node) -> None:
        """A node joined."""
        started = perf_counter()
        log.v(3).info("Add event for node", node=node.metadata.name)
        self._cache.add_node(node)
        self._queue.move_all_to_active_or_backoff(NODE_ADD, None, node)
        self._timed.observe(NODE_ADD, started)

    def on_update(self, old: Node, new: Node) -> None:
        """A node changed."""
        started = perf_counter()
        log.v(4).info("Update event for node", node=new.metadata.name)
        events = node_events(old, new, self._preemption_policy)
        # Most updates are heartbeats. They must not count as a changed row: that would invalidate
        # the shared results of every class of pods for this node, every few seconds.
        if events or old.spec != new.spec or old.status != new.status:
            self._cache.update_node(new)
        else:
            self._cache.replace_node_object(new)
        for event in events:
            self._queue.move_all_to_active_or_backoff(event, old, new)
            self._timed.observe(event, started)

    def on_delete(self, node: Node, final_state_unknown: bool = False) -> None:
        """A node left."""
        started = perf_counter()
        log.v(3).info("Delete event for node", node=node.metadata.name)
        # Before the cache, as in kube-scheduler.
        self._queue.move_all_to_active_or_backoff(NODE_DELETE, node, None)
        try:
            self._cache.remove_node(node.metadata.name)
        except CacheError as error:
            log.error("Scheduler cache RemoveNode failed", err=error, node=node.metadata.name)
        self._timed.observe(NODE_DELETE, started)


class OtherHandlers(_FirstListHandlers):
    """Hands changes of a kind that only plugins registered to the queue."""

    def __init__(self, event_resource: str, queue: SchedulingQueue, metrics: SchedulerMetrics):
        self._queue = queue
        self._timed = _Timed(metrics)
        self._add = ClusterEvent(event_resource, ADD)
        self._update = ClusterEvent(event_resource, UPDATE)
        self._delete = ClusterEvent(event_resource, DELETE)

    def on_add(self, obj: Any) -> None:
        """An object appeared."""
        self._move(self._add, None, obj)

    def on_update(self, old: Any, new: Any) -> None:
        """An object changed, in whatever way."""
        self._move(self._update, old, new)

    def on_delete(self, obj: Any, final_state_unknown: bool = False) -> None:
        """An object is gone."""
        self._move(self._delete, obj, None)

    def _move(self, event: ClusterEvent, old: Any, new: Any) -> None:
        started = perf_counter()
        self._apply(old, new)
        self._queue.move_all_to_active_or_backoff(event, old, new)
        self._timed.observe(event, started)

    def _apply(self, old: Any, new: Any) -> None:
        """Do nothing before the event."""


class PodGroupHandlers(OtherHandlers):
    """Applies added, updated and deleted groups. A handler of the informer of either kind.

    Unlike other kinds, groups are watched whether or not a plugin registered them: without its
    group object no pod of it can be queued.
    """

    def __init__(
        self, event_resource: str, queue: SchedulingQueue, metrics: SchedulerMetrics
    ) -> None:
        """``event_resource``: ``POD_GROUP`` or ``COMPOSITE_POD_GROUP``."""
        super().__init__(event_resource, queue, metrics)
        assert queue.pod_groups is not None
        self._pod_groups = queue.pod_groups

    def on_update(self, old: Group, new: Group) -> None:
        """A group changed."""
        # A resync repeats what is known. Offline objects have no version and always count.
        if old.metadata.resource_version == new.metadata.resource_version != "":
            return
        # The watch may miss that a group was deleted and created anew.
        if old.metadata.uid != new.metadata.uid:
            self.on_delete(old, final_state_unknown=True)
            self.on_add(new)
        else:
            super().on_update(old, new)

    def _apply(self, old: Group | None, new: Group | None) -> None:
        if old is None:
            assert new is not None
            self._pod_groups.add_group(new)
        elif new is None:
            self._pod_groups.delete_group(old)
        else:
            self._pod_groups.update_group(old, new)
