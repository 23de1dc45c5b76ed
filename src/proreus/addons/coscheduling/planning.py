"""Mode ``plan``: groups are provided to the scheduler, and their pods are counted.

``provided_groups`` has the groups that the scheduler sees. ``planned`` decides whether the pods of
a group are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proreus.addons.coscheduling.groups import Group, MatchPolicy, Membership, membership_of
from proreus.addons.coscheduling.planned_groups import PlannedGroup, StartingTogether
from proreus.addons.coscheduling.provided_groups import (
    ProvidedGroups,
    changed_objects,
    objects_of,
    task_object,
)
from proreus.framework import Handle
from proreus.objects import Pod

FindGroup = Callable[[Membership], Group | None]
"""Returns the group that a pod names; None while its PodGroup does not exist."""


class GroupPlanner:
    """Provides groups to the scheduler, and counts their pods.

    ``find_group``: returns the present version of a group.
    """

    # Invariants: _groups has the groups that have pods, by their key; _task_of the group and task
    # of each PodGroup that is provided, by ``namespace/name``. All pods have been counted that came
    # or went before _counted.

    def __init__(self, handle: Handle, find_group: FindGroup) -> None:
        self._handle = handle
        self._states = handle.pod_group_states
        self._find_group = find_group
        self._groups: dict[str, PlannedGroup] = {}
        self._task_of: dict[str, tuple[PlannedGroup, str]] = {}
        self._together = StartingTogether(self._is_complete)
        self._provided = ProvidedGroups(handle)
        self._counted = self._states.position

    # ---- groups --------------------------------------------------------------------------------

    def pod_appeared(self, pod: Pod) -> None:
        """Provide the group of a pod that is new, or has changed."""
        membership = membership_of(pod)
        if membership is None:
            return
        key, task, priority = membership.key, membership.task, pod.spec.priority or 0
        planned = self._groups.get(key)
        if planned is None:
            planned = self._groups[key] = PlannedGroup(membership, priority)
        had_tasks, is_new = planned.has_tasks, not planned.has_task(task)
        if is_new:
            self._task_of[_state_key(membership, task)] = planned, task
            self._count(planned, task)
        if pod.spec.node_name:
            self._note_if_satisfied(planned)
        if key not in self._provided or priority > planned.priority or (is_new and not had_tasks):
            planned.priority = max(priority, planned.priority)
            self._provide_all(planned, self._find_group(planned.membership))
        elif is_new:
            assert planned.group is not None
            self._provided.add(key, [task_object(planned, planned.group, task)])

    def provide(self, key: str) -> None:
        """Provide a group as it is now; take it back if its PodGroup is gone."""
        planned = self._groups.get(key)
        if planned is None:
            return
        before, group = planned.group, self._find_group(planned.membership)
        if before is None or group is None or not planned.has_tasks:
            self._provide_all(planned, group)
            return
        self._use(planned, group)
        self._provided.add(key, changed_objects(planned, before, group))

    def _provide_all(self, planned: PlannedGroup, group: Group | None) -> None:
        self._use(planned, group)
        if group is None:
            self._provided.remove(planned.key)
            return
        others = (self._groups.get(one) for one in group.gangs)
        priorities = (one.priority for one in others if one is not None)
        highest = max(priorities, default=planned.priority)
        self._provided.put(planned.key, objects_of(planned, group, highest))

    def _use(self, planned: PlannedGroup, group: Group | None) -> None:
        """Use another version of a group."""
        planned.use(group)
        self._together.note(planned.key, planned.is_complete)
        if group is None:
            self._together.remove(planned.key)
        else:
            self._together.put(planned.key, group.together)

    def forget(self, key: str) -> None:
        """Forget a group that has no pods."""
        planned = self._groups.pop(key, None)
        if planned is None:
            return
        for task in planned.tasks:
            del self._task_of[_state_key(planned.membership, task)]
        self._provided.remove(key)
        self._together.remove(key)
        self._together.note(key, False)

    # ---- counts --------------------------------------------------------------------------------

    def _count_changes(self) -> None:
        """Count the pods that came, went, or got or lost a node."""
        since, self._counted = self._counted, self._states.position
        if since == self._counted:
            return
        changed = self._states.changed_since(since)
        for name in self._task_of if changed is None else changed:
            found = self._task_of.get(name)
            if found is not None:
                self._count(*found)

    def _count(self, planned: PlannedGroup, task: str) -> None:
        before = planned.is_complete
        state = self._states.get(_state_key(planned.membership, task))
        pods, scheduled = (0, 0) if state is None else (state.all_pods_count, state.scheduled_count)
        planned.count(task, pods, scheduled)
        if planned.is_complete != before:
            self._together.note(planned.key, not before)

    def _is_complete(self, key: str) -> bool:
        planned = self._groups.get(key)
        return planned is not None and planned.is_complete

    def planned(self, pod: Pod) -> PlannedGroup | None:
        """Return the group of a pod, all pods counted; None while its PodGroup does not exist."""
        membership = membership_of(pod)
        if membership is None:
            return None
        self._count_changes()
        planned = self._groups.get(membership.key)
        return None if planned is None or planned.group is None else planned

    def planned_of(self, name: str) -> PlannedGroup | None:
        """Return the group of a PodGroup that is provided."""
        found = self._task_of.get(name)
        return None if found is None else found[0]

    # ---- gates ---------------------------------------------------------------------------------

    def lacking(self, planned: PlannedGroup) -> str | None:
        """Return the reason why a group may not start yet, None if it may."""
        key = self._together.lacking(planned.key)
        if key is None:
            return None
        lacking = self._groups.get(key)
        if lacking is None or lacking.group is None:
            return f"waiting for group {key}"
        needed = lacking.group.min_member
        return f"waiting for {needed} pods of group {key}, of which {lacking.known} exist"

    def ungated_pods(self) -> list[str]:
        """Return a pod of each group that may start since the last call: it stands for all."""
        self._count_changes()
        released = dict(self._together.released)
        self._together.released.clear()
        return [pod for key in released for pod in self._any_waiting_pod(key)]

    def _any_waiting_pod(self, key: str) -> Iterator[str]:
        """Yield the ``namespace/name`` of one pod of a group that has no node, if there is one."""
        planned = self._groups.get(key)
        if planned is None:
            return
        for task in planned.tasks:
            state = self._states.get(_state_key(planned.membership, task))
            for pod in () if state is None else state.unscheduled.values():
                yield pod.key
                return

    def pod_bound(self, key: str) -> None:
        """Note that a group has its minimum, so that its pods may start alone from now on."""
        # Its last pod may have gone while it was tried.
        if (planned := self._groups.get(key)) is not None:
            self._note_if_satisfied(planned)

    def _note_if_satisfied(self, planned: PlannedGroup) -> None:
        """Note that a pod of a group has a node, which it got beside enough others."""
        group = planned.group or self._find_group(planned.membership)
        if group is None or group.policy is not MatchPolicy.ONCE_SATISFIED:
            return
        if not planned.is_satisfied:
            planned.is_satisfied = True
            self._together.released[planned.key] = None


def _state_key(membership: Membership, task: str) -> str:
    return f"{membership.namespace}/{membership.provided_name(task)}"
