"""Lists groups of pods that are scheduled together: what each needs, has, and waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from proreus.base.clock import Clock
from proreus.engine.cache.pod_group_states import PodGroupState
from proreus.engine.scheduler import Scheduler
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.workload_forest import Group
from proreus.insight.dashboard.pod_list import gates_of, short_reasons
from proreus.insight.explain.groups import PodsOfGroup, group_of
from proreus.insight.explain.queues import first_tried
from proreus.objects.scheduling import POD_GROUP_TYPE, EntityKey, pod_group_key


class GroupRow(msgspec.Struct):
    """A group. ``needed``: pods that start together, 0 where each may start alone.

    ``pods``: known ones, of which ``placed`` have a node and ``waiting`` have none. ``state``: see
    ``_state``. ``since``: since when it waits, in seconds since the epoch, None if it does not.
    ``blocking``: a waiting pod, ``namespace/name``, of which ``why`` speaks.
    """

    kind: str
    namespace: str
    name: str
    parent: str
    needed: int
    pods: int
    placed: int
    waiting: int
    state: str
    since: float | None = None
    attempts: int = 0
    blocking: str = ""
    why: str = ""
    kept: PodsOfGroup | None = None
    """The group, where a plugin keeps it to itself."""

    @property
    def key(self) -> str:
        """``namespace/name``"""
        return f"{self.namespace}/{self.name}"

    @property
    def waits(self) -> bool:
        """Whether some of its pods wait, or it lacks pods."""
        return self.waiting > 0 or self.pods < self.needed


FILTERS = ("q", "namespace", "state")
COLUMNS: dict[str, Callable[[GroupRow], object]] = {
    # From the largest down: groups that wait come first, the longest waiting first of all.
    "-waits": lambda row: (row.since is not None, -(row.since or 0.0)),
    "name": lambda row: row.name,
    "namespace": lambda row: row.namespace,
    "state": lambda row: row.state,
    "-needed": lambda row: row.needed,
    "-pods": lambda row: row.pods,
    "-placed": lambda row: row.placed,
    "-waiting": lambda row: row.waiting,
}


class Groups:
    """The groups of a scheduler. ``message_of``: returns the message of a pod's last attempt."""

    def __init__(
        self, scheduler: Scheduler, clock: Clock, message_of: Callable[[str], str]
    ) -> None:
        self._forest = scheduler.cache.workload_forest
        self._states = scheduler.cache.pod_group_states
        self._scheduler = scheduler
        self._queue = scheduler.queue
        self._clock = clock
        self._message_of = message_of

    def rows(self) -> Iterator[GroupRow]:
        """Yield all groups, also those of which only pods are known."""
        for group in self._forest.all():
            yield self.row(group.key, group)
        for key in self._states.keys():  # noqa: SIM118
            namespace, _, name = key.partition("/")
            entity = EntityKey(POD_GROUP_TYPE, namespace, name)
            if self._forest.get(entity) is None:
                yield self.row(entity, None)
        yield from self._kept_by_plugins()

    def _kept_by_plugins(self) -> Iterator[GroupRow]:
        """Yield the groups with waiting pods that are only known to plugins."""
        sources = [one.pod_group_source for one in self._scheduler.profiles.values()]
        if not any(sources):
            return
        seen: set[str] = set()
        for pods in self._queue.pods_by_queue().values():
            for queued in pods:
                if queued.key in seen or pod_group_key(queued.pod):
                    continue
                group = group_of(self._scheduler, queued.pod)
                if group is not None:
                    seen.update(one.key for one in group.waiting)
                    yield self._kept(group)

    def _kept(self, group: PodsOfGroup) -> GroupRow:
        namespace, _, name = group.name.partition("/")
        row = GroupRow(
            kind="of a plugin",
            namespace=namespace,
            name=name,
            parent="",
            needed=group.min_count,
            pods=group.known,
            placed=group.scheduled,
            waiting=len(group.waiting),
            state="",
            kept=group,
        )
        waiting = [queued.info for queued in group.waiting]
        self._explain(row, waiting, exists=not group.missing)
        return row

    def find(self, namespace: str, name: str) -> GroupRow | None:
        """Return a group by name; None if neither it nor a pod of it is known."""
        found = (row for row in self.rows() if (row.namespace, row.name) == (namespace, name))
        return next(found, None)

    def members(self, row: GroupRow) -> list[tuple[PodInfo, str]]:
        """Return the pods of a group with their nodes, waiting ones first, then by name."""
        if row.kept is not None:
            return [(queued.info, "") for queued in row.kept.waiting]
        states = list(self._states_of(EntityKey(row.kind.lower(), row.namespace, row.name)))
        waiting = [(pod, "") for state in states for pod in state.unscheduled.values()]
        placed = [(one.pod, one.node_name) for state in states for one in state.scheduled()]
        return [*sorted(waiting, key=_key), *sorted(placed, key=_key)]

    def row(self, key: EntityKey, group: Group | None) -> GroupRow:
        """Return the row of a group; ``group`` is None where the object does not exist."""
        states = list(self._states_of(key))
        waiting = [pod for state in states for pod in state.unscheduled.values()]
        parent = None if group is None else self._forest.parent_of(group)
        row = GroupRow(
            kind="CompositePodGroup" if key.is_composite else "PodGroup",
            namespace=key.namespace,
            name=key.name,
            parent="" if parent is None else parent.name,
            needed=0 if group is None else group.min_count,
            pods=sum(state.all_pods_count for state in states),
            placed=sum(state.scheduled_count for state in states),
            waiting=len(waiting),
            state="",
        )
        self._explain(row, waiting, exists=group is not None)
        return row

    def _states_of(self, key: EntityKey) -> Iterator[PodGroupState]:
        leaves = self._forest.leaves_of(key) if key.is_composite else [key]
        for leaf in leaves:
            state = self._states.get(leaf.namespaced_name)
            if state is not None:
                yield state

    def _explain(self, row: GroupRow, waiting: list[PodInfo], *, exists: bool) -> None:
        """Say where a group stands, and why."""
        queued = self._first_queued(waiting)
        if queued is not None:
            entity = self._queue.pod_groups and self._queue.pod_groups.group_of(queued.pod)
            first = first_tried(queued)
            row.since = self._clock.now() - (self._clock.monotonic() - first)
            row.attempts = max(queued.attempts, entity.attempts if entity else 0)
        if not exists:
            row.state = "not found"
            row.why = "The PodGroup does not exist. Its pods wait until it is created."
        elif row.pods < row.needed:
            row.state = "incomplete"
            missing = row.needed - row.pods
            row.why = f"{missing} of the {row.needed} pods that it needs have not been created."
        elif not waiting:
            row.state = "placed"
        else:
            row.state = "waiting"
            row.blocking, row.why = self._reason(waiting)

    def _first_queued(self, waiting: list[PodInfo]) -> QueuedPodInfo | None:
        for pod in waiting:
            queued = self._queue.get(pod.key)
            if queued is not None:
                return queued
        return None

    def _reason(self, waiting: list[PodInfo]) -> tuple[str, str]:
        """Return a pod that has no node, and what is known about why."""
        known = [(pod, self._queue.get(pod.key)) for pod in waiting]
        # Most pods only say that others of the group do not fit: the ones that plugins rejected
        # come first.
        known.sort(key=lambda one: one[1] is None or not one[1].rejectors)
        for pod, queued in known:
            message = short_reasons(self._message_of(pod.key))
            if message:
                return pod.key, f"{pod.name}: {message}"
            if queued is not None and queued.gated:
                return pod.key, gates_of(queued) or f"{queued.gating_plugin} holds it back"
        return waiting[0].key, "It has not been tried yet."


def _key(member: tuple[PodInfo, str]) -> str:
    return member[0].key
