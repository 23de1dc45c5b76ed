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

from collections.abc import Callable, Iterable, Iterator, Sequence

from proreus.base import logs
from proreus.base.clock import Clock
from proreus.engine.queue.in_flight import InFlightEvent
from proreus.engine.queue.queue_recorder import QueueRecorder
from proreus.engine.queue.queueing_hints import QueueingHints, QueueingStrategy, uid_of
from proreus.engine.queue.sub_queues import SubQueues
from proreus.framework.events import (
    FORCE_ACTIVATE,
    SCHEDULE_ATTEMPT_FAILURE,
    UPDATE,
    ClusterEvent,
)
from proreus.framework.pod_events import PodEvents
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedPodGroupInfo
from proreus.framework.status import Code, Status
from proreus.framework.workload_forest import Group, WorkloadForest
from proreus.objects.pod import Pod
from proreus.objects.scheduling import EntityKey, pod_group_entity_key

log = logs.logger(__name__)


class PodGroupMemberPods:
    """Pods of groups that wait outside of their group's entity (``podGroupMemberPods``).

    By PodGroup and ``namespace/name``, in the order in which they came: with a thousand groups of
    which the pods came first, each group that appears would otherwise look at the pods of all.
    """

    # Invariant: no entry of _by_group is empty. The key None is for pods whose group has no name.

    def __init__(self) -> None:
        self._by_group: dict[EntityKey | None, dict[str, QueuedPodInfo]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        for pods in self._by_group.values():
            yield from pods.values()

    def add(self, queued: QueuedPodInfo) -> None:
        """Add a pod."""
        self._by_group.setdefault(pod_group_entity_key(queued.pod), {})[queued.key] = queued

    def discard(self, queued: QueuedPodInfo) -> bool:
        """Remove a pod; return whether it was here."""
        group = pod_group_entity_key(queued.pod)
        pods = self._by_group.get(group, {})
        if pods.pop(queued.key, None) is None:
            return False
        if not pods:
            del self._by_group[group]
        return True

    def clear(self, group: EntityKey) -> list[QueuedPodInfo]:
        """Remove and return the pods of a group."""
        return list(self._by_group.pop(group, {}).values())

    def validate(self) -> None:
        """Assert that each pod is under its group and key."""
        for group, pods in self._by_group.items():
            assert pods, f"{group} is kept without pods"
            for key, queued in pods.items():
                assert (queued.key, pod_group_entity_key(queued.pod)) == (key, group), (
                    f"{queued.key} is kept as {key} of {group}"
                )


class PodGroupQueue:
    """Pods of groups. ``forest``: the groups that are known. ``notify_ready``: see ``on_ready``.

    ``incomplete``: pods whose root group is not known; ``pending``: pods whose root group was
    popped and is being tried.
    """

    # Invariants: ``SubQueues.group_pods`` has the pods of incomplete, of pending, and of all groups
    # in active, backoff and unschedulable, each of them once. A pod is incomplete if and only if
    # the forest has no root of it; otherwise it is pending or in the entity of its root.

    def __init__(
        self,
        sub_queues: SubQueues,
        forest: WorkloadForest,
        hints: QueueingHints,
        recorder: QueueRecorder,
        clock: Clock,
        events: PodEvents,
        notify_ready: Callable[[], None],
    ) -> None:
        self._sub_queues = sub_queues
        self._pods = sub_queues.group_pods
        self._active = sub_queues.active
        self._backoff = sub_queues.backoff
        self._unschedulable = sub_queues.unschedulable
        self._nominator = sub_queues.nominator
        self._forest = forest
        self._hints = hints
        self._recorder = recorder
        self._clock = clock
        self._added, self._updated = events.unscheduled_add.label, events.unscheduled_update.label
        self._notify_ready = notify_ready
        self.incomplete = PodGroupMemberPods()
        self.pending = PodGroupMemberPods()
        self._missed = self._helped = False
        """Whether there were events while the group was tried, and whether one helps its pods."""

    # ---- pods ----------------------------------------------------------------------------------

    def group_of(self, pod: Pod) -> QueuedPodGroupInfo | None:
        """Return the group that a pod waits in, or would wait in."""
        return self._entity_of(pod_group_entity_key(pod))

    def _root_of(self, pod: Pod) -> Group | None:
        return self._forest.root_of(pod_group_entity_key(pod))

    def _entity_of(self, group: EntityKey | None) -> QueuedPodGroupInfo | None:
        root = self._forest.root_of(group)
        entity = None if root is None else self._sub_queues.get_entity(str(root.key))
        assert not isinstance(entity, QueuedPodInfo)
        return entity

    def add(self, queued: QueuedPodInfo) -> None:
        """Add a pod of a group, wherever its root group is."""
        if queued.key in self._pods:
            log.error("Pod is already present in the scheduling queue", pod=queued.key)
            return
        self._pods[queued.key] = queued
        self._place(queued)

    def add_unschedulable(self, queued: QueuedPodInfo, missed: Iterable[InFlightEvent]) -> None:
        """Add a pod of a group that was tried; ``missed``: the events meanwhile."""
        root = self._root_of(queued.pod)
        # Other groups are tried again without an event. A pod may also have been bound, in vain.
        key = "" if root is None or not root.key.is_provided else str(root.key)
        if missed and key and key == self._active.last_popped_group:
            self._missed = True
            if queued.rejectors:
                strategy = self._hints.strategy_after_failure(queued, missed)
                self._helped |= strategy is not QueueingStrategy.SKIP
            else:
                activated = (new for event, _, new in missed if event.wildcard)
                self._helped |= any(new is None or uid_of(new) == queued.uid for new in activated)
        self.add(queued)

    def _place(self, queued: QueuedPodInfo) -> None:
        """Put a pod into the entity of its root group, or where it waits for that."""
        root = self._root_of(queued.pod)
        if root is None:
            self.incomplete.add(queued)
            self._recorder.note(queued.key, "incomplete")
            return
        key = str(root.key)
        # As it is there counts as a nominated pod from now on (Nominator.nominated_pods).
        self._nominator.record_change(queued.uid)
        entity = self._sub_queues.get_entity(key)
        if isinstance(entity, QueuedPodGroupInfo):
            entity.add_pod(queued)
            self._joined(entity, queued)
        elif self._active.last_popped_group == key:
            self.pending.add(queued)
            self._recorder.note(queued.key, "pending")
        else:
            entity = QueuedPodGroupInfo(root.key, root.priority, queued.timestamp)
            entity.initial_attempt_timestamp = queued.initial_attempt_timestamp
            entity.add_pod(queued)
            self._sub_queues.move_to_active(entity, self._added)
        self._notify_ready()

    def _joined(self, entity: QueuedPodGroupInfo, queued: QueuedPodInfo) -> None:
        """Put a group where it belongs now that a pod has joined it."""
        entity.begin_round()
        if entity.key not in self._unschedulable:
            self._sub_queues.group_changed(entity, (queued,), self._added)
        elif entity.gated:
            # Where the group stays gated whoever joins it, nothing but the new pod is looked at.
            self._unschedulable.pod_joined(entity, queued)
            # kube-scheduler takes the group out and puts it back, which counts all of its pods.
            self._recorder.record_incoming_pods("unschedulable", self._added, entity)
        else:
            # It was rejected as it was, and is another group with one more pod.
            self._unschedulable.discard(entity.key)
            self._sub_queues.requeue(entity, QueueingStrategy.AFTER_BACKOFF, self._added)

    def update(self, old: PodInfo | None, new: PodInfo, events: Sequence[ClusterEvent]) -> bool:
        """Apply an update of a pod; return whether it waits here. ``events``: of the update."""
        queued = self._pods.get(new.key)
        if queued is None:
            return False
        queued.info = new
        self._nominator.update(old, new)
        group = self.group_of(new.pod)
        if group is None:
            return True
        before = None if old is None else old.pod
        is_provided = group.root.is_provided
        # Most changes of a status are our own: a failure that wakes its group never ends.
        if is_provided and before is not None and _differs_in_status_only(before, new.pod):
            events = [event for event in events if event.action != UPDATE]
        if group.key not in self._unschedulable:
            self._sort_anew(group)
            if group.next_placement:
                for event in events:
                    strategy = self._hints.group_queueing_strategy(group, event, before, new.pod)
                    group.helped |= strategy is not QueueingStrategy.SKIP
            return True
        for event in events:
            # As for events of others: what has not passed PreEnqueue waits for its gate alone.
            # kube-scheduler asks all of its pods, and a pod that no plugin gates has it tried.
            if (
                group.gated
                and is_provided
                and not self._hints.gating_plugin_registered(group, event)
            ):
                continue
            strategy = self._hints.group_queueing_strategy(group, event, before, new.pod)
            if is_provided and not group.gated:
                # A pod that was placed in the attempt may leave its place to one that was not.
                strategy = max(strategy, QueueingStrategy.AFTER_BACKOFF)
            if self._sub_queues.requeue(group, strategy, event.label):
                break
        self._notify_ready()
        return True

    def _sort_anew(self, group: QueuedPodGroupInfo) -> None:
        for queue in (self._active, self._backoff):
            if group.key in queue:
                queue.put(group)

    def activate(self, pod: Pod | None) -> bool:
        """Make the root group of a pod active, without back-off; return whether it waited.

        The pod itself may be in flight, or have a node: others of its group wait.
        """
        group = None if pod is None else self.group_of(pod)
        if group is None or group.key in self._active:
            return False
        from_backoff = self._backoff.discard(group.key) is not None
        self._sub_queues.move_to_active(group, FORCE_ACTIVATE.label, from_backoff=from_backoff)
        return True

    def delete(self, pod: Pod, key: str) -> None:
        """Forget a pod that is gone, or has a node now. ``key``: its ``namespace/name``."""
        queued = self._pods.pop(key, None)
        if queued is not None:
            profile = queued.pod.spec.scheduler_name
            self._recorder.remove_unschedulable_reasons(profile, queued.rejectors)
            if self.incomplete.discard(queued) or self.pending.discard(queued):
                return
            # A namesake may have been of another group.
            pod = queued.pod
        root = self._root_of(pod)
        entity = None if root is None else self._sub_queues.get_entity(str(root.key))
        if isinstance(entity, QueuedPodGroupInfo):
            self._left(entity, queued)

    def _left(self, entity: QueuedPodGroupInfo, queued: QueuedPodInfo | None) -> None:
        """Put a group where it belongs now that a pod has left it; one without pods is dropped.

        ``queued`` is None if the pod did not wait with the others.
        """
        entity.begin_round()
        if queued is not None:
            entity.remove_pod(queued)
        if entity.key in self._unschedulable:
            if queued is not None:
                self._sub_queues.unschedulable_group_changed(entity, queued, self._added)
        elif entity.pods_by_group:
            # As in kube-scheduler: the others may be too few now. Those that are alike agree.
            pods = next(iter(entity.pods_by_group.values()))
            leaf = None if queued is None else pod_group_entity_key(queued.pod)
            alike = pods if leaf is None else entity.pods_by_group.get(leaf, pods)
            looked_at = {one.uid: one for one in (pods[0], alike[0])}
            self._sub_queues.group_changed(entity, looked_at.values(), self._added)
            self._notify_ready()
        if not entity.pods_by_group:
            self._sub_queues.take(entity.key)

    def _put_back(
        self, group: QueuedPodGroupInfo, strategy: QueueingStrategy | None, label: str
    ) -> None:
        """Put a group back to where it was; one without pods is dropped."""
        if group.pods_by_group and strategy is not None:
            # As in kube-scheduler, PreEnqueue runs again unless it is gated, even if the pod that
            # gated it has just left it.
            self._sub_queues.requeue(group, strategy, label)
            self._notify_ready()

    # ---- groups --------------------------------------------------------------------------------

    def add_group(self, group: Group) -> None:
        """Add a group to the forest, and the pods that waited for it to their root group."""
        self._forest.put(group)
        if not self.incomplete or self._forest.root_of(group.key) is None:
            return
        # Those beside it had a root before, or have none now.
        for leaf in self._forest.leaves_of(group.key):
            for queued in self.incomplete.clear(leaf):
                self._place(queued)

    def update_group(self, old: Group, new: Group) -> None:
        """Replace a group in the forest by its new version."""
        # The apiserver lets no group change its parent, but the watch may miss that a group was
        # deleted and created anew.
        if self._forest.parent_of(old) != self._forest.parent_of(new):
            self.delete_group(old)
            self.add_group(new)
            return
        self._forest.put(new)
        root, entity = self._forest.root_of(new.key), self._entity_of(new.key)
        if root is not None and entity is not None and entity.priority != root.priority:
            entity.priority = root.priority
            self._sort_anew(entity)

    def put_provided(self, groups: Iterable[Group]) -> None:
        """Add groups that a plugin provides, or replace them by their new versions."""
        changed: dict[EntityKey, None] = {}
        for group in groups:
            known = self._forest.get(group.key)
            if known is None:
                self.add_group(group)
            elif known != group:
                self.update_group(known, group)
                root = self._forest.root_of(group.key)
                if root is not None:
                    changed[root.key] = None
        # What they need may have changed, which no rejection of their pods tells of.
        for key in changed:
            entity = self._sub_queues.get_entity(str(key))
            if isinstance(entity, QueuedPodGroupInfo) and not entity.gated:
                entity.begin_round()
                _, strategy = self._sub_queues.take(entity.key)
                if strategy is QueueingStrategy.SKIP:
                    strategy = QueueingStrategy.AFTER_BACKOFF
                self._put_back(entity, strategy, self._updated)

    def delete_group(self, group: Group) -> None:
        """Remove a group from the forest; its pods wait until it is there again."""
        root, leaves = self._forest.root_of(group.key), self._forest.leaves_of(group.key)
        self._forest.remove(group.key)
        if root is None:
            return
        entity, strategy = self._sub_queues.take(str(root.key))
        if isinstance(entity, QueuedPodGroupInfo):
            for queued in entity.remove_groups(leaves):
                self.incomplete.add(queued)
            self._put_back(entity, strategy, self._updated)
        elif self._active.last_popped_group == str(root.key):
            for leaf in leaves:
                for queued in self.pending.clear(leaf):
                    self.incomplete.add(queued)

    def add_attempted(self, tried: QueuedPodGroupInfo, status: Status | None) -> None:
        """Requeue a group after its attempt (AddAttemptedPodGroupIfNeeded).

        Its pods are those that came back, or were added meanwhile; with none it is dropped.
        ``status``: the attempt's result before PodGroupPostFilter, None if it succeeded.
        """
        missed, helped, self._missed, self._helped = self._missed, self._helped, False, False
        self._active.last_popped_group = ""
        leaves = self._forest.leaves_of(tried.root)
        pods = [queued for leaf in leaves for queued in self.pending.clear(leaf)]
        if queue_name := self._sub_queues.queue_of(tried.key):
            log.error(f"pod group {tried.key} is already present in {queue_name}")
            for queued in pods:
                self._place(queued)
            return
        root = self._forest.get(tried.root)
        if not pods or root is None:
            return
        uids = {queued.uid for queued in tried.queued_pods}
        joined = any(queued.uid not in uids for queued in pods)
        group = tried.without_pods(root.priority)
        for queued in pods:
            group.add_pod(queued)
        now = self._clock.monotonic()
        group.unschedulable_plugins = set()
        if status is None or status.code == Code.SUCCESS:
            # Pods that did not fit beside the others are tried again at once: by themselves they
            # may preempt, and a time stamp of now would let others overtake them.
            if uids.isdisjoint(queued.uid for queued in pods):
                group.timestamp = now
            group.unschedulable_count = group.consecutive_errors_count = 0
            # Without a back-off, also if it was activated before an earlier one was over.
            strategy = QueueingStrategy.IMMEDIATELY
        else:
            strategy = QueueingStrategy.AFTER_BACKOFF
            if status.rejected:
                group.unschedulable_count += 1
                group.consecutive_errors_count = 0
                if tried.root.is_provided:
                    strategy = _after_rejection(group, missed, helped or joined)
            else:
                group.consecutive_errors_count += 1
            group.timestamp, group.backoff_expiration = now, None
            group.room_made = 0
        if group.next_placement:
            self._sub_queues.unfinished_groups[group.key] = group
        else:
            group.begin_round()
        group.was_flushed_from_unschedulable, group.flush_timestamp = False, 0.0
        self._sub_queues.requeue(group, strategy, SCHEDULE_ATTEMPT_FAILURE, is_new=True)
        self._notify_ready()

    def validate(self) -> None:
        """Assert that each pod of a group is in one place, and that this is the right one."""
        queues = (self._active, self._backoff, self._unschedulable)
        waiting = []
        for group in (one for queue in queues for one in queue.pods()):
            if not isinstance(group, QueuedPodGroupInfo):
                continue
            assert group.size, f"{group.key} is queued without pods"
            for leaf, pods in group.pods_by_group.items():
                assert pods, f"{group.key} keeps {leaf} without pods"
                for queued in pods:
                    assert pod_group_entity_key(queued.pod) == leaf, f"{queued.key} is in {leaf}"
                    assert self.group_of(queued.pod) is group, f"{queued.key} is in {group.key}"
                    waiting.append(queued)
        for queued in self.incomplete:
            root = self._root_of(queued.pod)
            assert root is None, f"{queued.key} is not incomplete: {root}"
        for queued in self.pending:
            root = self._root_of(queued.pod)
            assert root is not None, f"{queued.key} is incomplete"
            assert str(root.key) == self._active.last_popped_group, f"{queued.key} is not pending"
        self.incomplete.validate()
        self.pending.validate()
        waiting += [*self.incomplete, *self.pending]
        assert sorted(queued.key for queued in waiting) == sorted(self._pods), (
            "the pods of groups are out of step"
        )
        assert all(self._pods[queued.key] is queued for queued in waiting), "a pod is there twice"


def _after_rejection(group: QueuedPodGroupInfo, missed: bool, helped: bool) -> QueueingStrategy:
    """Return where a provided group goes: its failure costs no more attempts until something helps.

    ``missed``: there were events during the attempt; ``helped``: one of them helps its pods.
    """
    group.unschedulable_plugins = set().union(*(pod.rejectors for pod in group.queued_pods))
    # Where no pod was tried, nobody knows what helps.
    group.helped |= helped or (missed and not group.unschedulable_plugins)
    rests = not (group.helped or group.next_placement)
    return QueueingStrategy.SKIP if rests else QueueingStrategy.AFTER_BACKOFF


def _differs_in_status_only(old: Pod, new: Pod) -> bool:
    """Return whether two versions of a pod are the same but for their status and version."""
    before, after = old.metadata, new.metadata
    return (
        old.spec == new.spec
        and before.labels == after.labels
        and before.annotations == after.annotations
    )
