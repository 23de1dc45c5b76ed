"""The pods of groups in the scheduling queue: a root group waits, with all its pods, as one entity.

    add(pod) ─┬─ a group on the way to its root is not known ─► incomplete
              ├─ its root group waits ─► into it, and back to where that was
              ├─ its root group is being tried ─► pending ─► add_attempted ─► active or backoff
              └─ else: a new entity ─► PreEnqueue of its pods ─► active

kube-scheduler's part of ``PriorityQueue`` for pod groups, since 1.37. Unlike a pod, a group never
waits for an event unless it is gated: its pods were rejected one after another, by plugins that saw
the pods before them, so that no hint of one pod says much about the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proreus import logs
from proreus.clock import Clock
from proreus.framework.events import SCHEDULE_ATTEMPT_FAILURE
from proreus.framework.pod_events import PodEvents
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedPodGroupInfo
from proreus.framework.status import Code, Status
from proreus.framework.workload_forest import Group, WorkloadForest
from proreus.objects.pod import Pod
from proreus.objects.scheduling import EntityKey, pod_group_entity_key
from proreus.queue.queue_recorder import QueueRecorder
from proreus.queue.queueing_hints import QueueingStrategy
from proreus.queue.sub_queues import SubQueues

log = logs.logger(__name__)


class PodGroupQueue:
    """Pods of groups. ``forest``: the groups that are known. ``notify_ready``: see ``on_ready``.

    ``incomplete``: pods whose root group is not known; ``pending``: pods whose root group was
    popped and is being tried; both by ``namespace/name``.
    """

    # Invariant: ``SubQueues.group_pods`` has the pods of incomplete, of pending, and of all groups
    # in active, backoff and unschedulable, each of them once.

    def __init__(
        self,
        sub_queues: SubQueues,
        forest: WorkloadForest,
        recorder: QueueRecorder,
        clock: Clock,
        events: PodEvents,
        notify_ready: Callable[[], None],
    ) -> None:
        self._sub_queues = sub_queues
        self._pods = sub_queues.group_pods
        self._active = sub_queues.active
        self._forest = forest
        self._recorder = recorder
        self._clock = clock
        self._added, self._updated = events.unscheduled_add.label, events.unscheduled_update.label
        self._notify_ready = notify_ready
        self.incomplete: dict[str, QueuedPodInfo] = {}
        self.pending: dict[str, QueuedPodInfo] = {}

    # ---- pods ----------------------------------------------------------------------------------

    def get(self, key: str) -> QueuedPodInfo | None:
        """Return a pod of a group that waits, by ``namespace/name``."""
        return self._pods.get(key)

    def group_of(self, pod: Pod) -> QueuedPodGroupInfo | None:
        """Return the group that a pod waits in, or would wait in."""
        root = self._forest.root_of(pod_group_entity_key(pod))
        entity = None if root is None else self._sub_queues.get_entity(str(root.key))
        assert not isinstance(entity, QueuedPodInfo)
        return entity

    def add(self, queued: QueuedPodInfo) -> None:
        """Add a pod of a group, wherever its root group is."""
        self._pods[queued.key] = queued
        root = self._forest.root_of(pod_group_entity_key(queued.pod))
        if root is None:
            self.incomplete[queued.key] = queued
            self._recorder.note(queued.key, "incomplete")
            return
        key, unschedulable = str(root.key), self._sub_queues.unschedulable
        # As it is there counts as a nominated pod from now on (Nominator.nominated_pods).
        self._sub_queues.nominator.record_change(queued.uid)
        if isinstance(entity := unschedulable.get(key), QueuedPodGroupInfo):
            # Where the group stays gated whoever joins it, nothing but the new pod is looked at.
            entity.add_pod(queued)
            unschedulable.pod_joined(entity, queued)
            return
        taken, strategy = self._sub_queues.take(key)
        if isinstance(taken, QueuedPodGroupInfo):
            taken.add_pod(queued)
            self._sub_queues.requeue(taken, strategy, self._added)
        elif self._active.last_popped_group == key:
            self.pending[queued.key] = queued
            self._recorder.note(queued.key, "pending")
        else:
            entity = QueuedPodGroupInfo(root.key, root.priority, queued.timestamp)
            entity.initial_attempt_timestamp = queued.initial_attempt_timestamp
            entity.add_pod(queued)
            self._sub_queues.move_to_active(entity, self._added)
        self._notify_ready()

    def delete(self, pod: Pod, key: str) -> None:
        """Forget a pod that is gone, or has a node now. ``key``: its ``namespace/name``."""
        queued = self._pods.pop(key, None)
        if queued is not None:
            profile = queued.pod.spec.scheduler_name
            self._recorder.remove_unschedulable_reasons(profile, queued.rejectors)
        if self.incomplete.pop(key, None) or self.pending.pop(key, None):
            return
        root = self._forest.root_of(pod_group_entity_key(pod))
        entity, strategy = (None, None) if root is None else self._sub_queues.take(str(root.key))
        if isinstance(entity, QueuedPodGroupInfo):
            entity.remove_pod(key)
            self._put_back(entity, strategy, self._added)

    def _put_back(
        self, group: QueuedPodGroupInfo, strategy: QueueingStrategy | None, label: str
    ) -> None:
        """Put a group back to where it was; one without pods is dropped."""
        if group.pods_by_group and strategy is not None:
            # Its gate may have been that of a pod which has just left it.
            self._sub_queues.requeue(group, strategy, label)
            self._notify_ready()

    # ---- groups --------------------------------------------------------------------------------

    def group_added(self, key: EntityKey) -> None:
        """Add the pods that waited for a group, which the forest has now."""
        root = self._forest.root_of(key)
        if root is None or not self.incomplete:
            return
        leaves = set(self._forest.leaves_of(root.key))
        for queued in _of_groups(self.incomplete.values(), leaves):
            del self.incomplete[queued.key]
            self.add(queued)

    def group_updated(self, key: EntityKey) -> None:
        """Sort a root group anew whose priority may have changed."""
        root = self._forest.root_of(key)
        entity = None if root is None else self._sub_queues.get_entity(str(root.key))
        if root is None or not isinstance(entity, QueuedPodGroupInfo):
            return
        if entity.priority != root.priority:
            entity.priority = root.priority
            if entity.key in self._active:
                self._active.put(entity)

    def group_deleted(self, group: Group) -> None:
        """Remove a group from the forest; its pods wait until it is there again."""
        root, leaves = self._forest.root_of(group.key), self._forest.leaves_of(group.key)
        self._forest.remove(group.key)
        if root is None:
            return
        entity, strategy = self._sub_queues.take(str(root.key))
        if isinstance(entity, QueuedPodGroupInfo):
            for queued in entity.remove_groups(leaves):
                self.incomplete[queued.key] = queued
            self._put_back(entity, strategy, self._updated)
        elif self._active.last_popped_group == str(root.key):
            for queued in _of_groups(self.pending.values(), set(leaves)):
                self.incomplete[queued.key] = self.pending.pop(queued.key)

    def popped(self, group: QueuedPodGroupInfo) -> None:
        """Forget the pods of a group that was popped: from now on they are in flight."""
        for queued in group.queued_pods:
            self._pods.pop(queued.key, None)

    def add_attempted(self, tried: QueuedPodGroupInfo, status: Status | None) -> None:
        """Requeue a group after its attempt (AddAttemptedPodGroupIfNeeded).

        Its pods are those that came back, or were added meanwhile; with none it is dropped.
        ``status``: the attempt's result before PodGroupPostFilter, None if it succeeded.
        """
        if queue_name := self._sub_queues.queue_of(tried.key):
            log.error(f"pod group {tried.key} is already present in {queue_name}")
            return
        self._active.last_popped_group = ""
        leaves = set(self._forest.leaves_of(tried.root))
        pods = _of_groups(self.pending.values(), leaves)
        root = self._forest.get(tried.root)
        if not pods or root is None:
            return
        uids = {queued.uid for queued in tried.queued_pods}
        group = tried.without_pods(root.priority)
        for queued in pods:
            del self.pending[queued.key]
            group.add_pod(queued)
        now = self._clock.monotonic()
        if status is None or status.code == Code.SUCCESS:
            # Pods that did not fit beside the others are tried again at once: by themselves they
            # may preempt, and a time stamp of now would let others overtake them.
            if uids.isdisjoint(queued.uid for queued in pods):
                group.timestamp = now
            group.unschedulable_count = group.consecutive_errors_count = 0
        else:
            if status.rejected:
                group.unschedulable_count += 1
                group.consecutive_errors_count = 0
            else:
                group.consecutive_errors_count += 1
            group.timestamp, group.backoff_expiration = now, None
        group.was_flushed_from_unschedulable, group.flush_timestamp = False, 0.0
        # A group that succeeded has counts of 0, hence no back-off.
        self._sub_queues.requeue(group, QueueingStrategy.AFTER_BACKOFF, SCHEDULE_ATTEMPT_FAILURE)
        self._notify_ready()

    def validate(self) -> None:
        """Assert that each pod of a group is in one place."""
        queues = (self._active, self._sub_queues.backoff, self._sub_queues.unschedulable)
        groups = [one for queue in queues for one in queue.pods()]
        waiting = [
            queued.key
            for group in groups
            if isinstance(group, QueuedPodGroupInfo)
            for queued in group.queued_pods
        ]
        keys = sorted([*waiting, *self.incomplete, *self.pending])
        assert keys == sorted(self._pods), "the pods of groups are out of step"


def _of_groups(pods: Iterable[QueuedPodInfo], groups: set[EntityKey]) -> list[QueuedPodInfo]:
    return [queued for queued in pods if pod_group_entity_key(queued.pod) in groups]
