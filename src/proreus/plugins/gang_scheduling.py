"""GangScheduling: bind the pods of a gang together or not at all (KEP-4671, gate GenericWorkload).

PreEnqueue gates a gang's pods until ``minCount`` of them exist, PlacementFeasible ends a dry run of
the gang in which that many cannot fit any more. The pod group cycle schedules all of them in one
attempt. Up to 1.37 Permit lets pods wait until ``minCount`` of them have a node. With gate
CompositePodGroup a tree of groups is one gang: of each CompositePodGroup ``minGroupCount`` children
have to be ready.

Up to 1.36 it has a gate of its own, and Permit takes the part of PlacementFeasible.

With ``KnownFault.GANG_MEMBER_COMPLETED`` a gang that has been scheduled once is none any more:
members that have finished are not known, so that a replacement would wait for them for ever.

Worked example: ``minCount`` is 3. Two pods are created and gated; the third ungates all. Two of
them fit, the third does not: none is bound.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Any

from proreus.base.known_faults import KnownFault
from proreus.base.kubernetes_version import Change
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    COMPOSITE_POD_GROUP,
    POD,
    POD_GROUP,
    UPDATE,
    ClusterEvent,
)
from proreus.framework.handle import Handle
from proreus.framework.plugin import PermitPlugin, PreEnqueuePlugin
from proreus.framework.pod_group import (
    POD_GROUP_SCHEDULING_CYCLE,
    PlacementProgress,
    PodGroupInfo,
)
from proreus.framework.pod_group_plugin import PlacementFeasiblePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.workload_forest import Group
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.objects.scheduling import (
    POD_GROUP_INITIALLY_SCHEDULED,
    POD_GROUP_SCHEDULED,
    POD_GROUPS,
    CompositePodGroup,
    EntityKey,
    PodGroup,
    pod_group_entity_key,
    pod_group_key,
)
from proreus.plugins.gang_texts import GangTexts, GangTextsOfMinCount
from proreus.plugins.ready_groups import ReadyGroups

WAIT_SECONDS = 5 * 60.0

_WAIT = Status.wait(WAIT_SECONDS, "waiting for minCount pods from a gang to be scheduled")
_TEXTS = (GangTextsOfMinCount(), GangTexts())


class GangScheduling(PreEnqueuePlugin, PermitPlugin, PlacementFeasiblePlugin):
    """Gates pods of a gang until there are ``minCount``, then lets them wait for each other."""

    group_wide = True

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        gates = handle.feature_gates
        self._enabled = gates.enabled("GangScheduling")
        self._composite = gates.enabled("CompositePodGroup")
        self._deferred_resizes = gates.enabled("InPlacePodVerticalScalingSchedulerPreemption")
        self._whole = gates.includes(Change.POD_GROUP_ENTITIES)
        """Whether the pods of a group wait in the queue as one."""
        self._texts = _TEXTS[gates.includes(Change.GANG_TEXTS_OF_1_38)]
        self._starts_once = gates.corrects(KnownFault.GANG_MEMBER_COMPLETED)
        self._condition = POD_GROUP_INITIALLY_SCHEDULED if self._whole else POD_GROUP_SCHEDULED
        self._groups = handle.store(POD_GROUPS) if self._enabled else {}
        self._states = handle.pod_group_states
        self._forest = handle.workload_forest
        self._known = ReadyGroups(self._forest, self._states, self._has_enough_known)
        self._scheduled = ReadyGroups(self._forest, self._states, self._has_enough_scheduled)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register new pods of the group, and the group itself."""
        if not self._enabled:
            return ()
        of_pod, of_group = self._ungated_by_pod, self._ungated_by_group
        updated = self._is_schedulable_after_pod_group_updated
        found = [
            ClusterEvent(POD, ADD, self._is_schedulable_after_pod_added, ungated_pods=of_pod),
            ClusterEvent(
                POD_GROUP, ADD, self._is_schedulable_after_group_added, ungated_pods=of_group
            ),
            ClusterEvent(POD_GROUP, UPDATE, updated, ungated_pods=of_group),
        ]
        if self._composite:
            added = self._is_schedulable_after_group_added
            found.append(ClusterEvent(COMPOSITE_POD_GROUP, ADD, added, ungated_pods=of_group))
            found.append(ClusterEvent(COMPOSITE_POD_GROUP, UPDATE, updated, ungated_pods=of_group))
        return found

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Gate a pod until its group and enough pods of it exist."""
        key = pod_group_entity_key(pod.pod)
        if key is None or not self._enabled:
            return None
        root = self._root_of(key)
        if root is None:
            return Status.unresolvable(self._texts.no_root(key, self._forest))
        return None if self._is_ready(root) else Status.unresolvable(self._texts.not_ready(root))

    def _root_of(self, key: EntityKey) -> Group | None:
        """Return the root of a PodGroup; None if it, or a group above it, is missing."""
        if self._composite:
            return self._forest.root_of(key)
        return self._groups.get(key.namespaced_name)

    def _is_ready(self, root: Group) -> bool:
        """Return whether enough pods exist; those of a basic PodGroup may start alone."""
        if isinstance(root, PodGroup):
            return not root.is_gang or self._has_enough_known(root)
        return self._known.is_ready(root)

    def _has_enough_known(self, group: PodGroup) -> bool:
        state = self._states.get(key_of(group))
        return (0 if state is None else state.all_pods_count) >= self._needed(group)

    def _has_enough_scheduled(self, group: PodGroup) -> bool:
        state = self._states.get(key_of(group))
        return (0 if state is None else state.scheduled_count) >= self._needed(group)

    def _needed(self, group: PodGroup) -> int:
        return 0 if self._has_started(group) else group.min_count

    def placement_feasible(
        self, state: CycleState, group: PodGroupInfo, progress: PlacementProgress
    ) -> Status | None:
        """Return whether ``minCount`` pods, or ``minGroupCount`` child groups, can still fit."""
        if not self._enabled or group.group is None:
            return None
        needed, scheduled = group.group.min_count, progress.scheduled
        if self._has_started(group.group):
            needed = 1
        if progress.remaining + scheduled < needed:
            return Status.unschedulable(self._texts.cannot(needed, progress))
        if scheduled < needed:
            return Status(Code.WAIT, (self._texts.not_yet(needed, progress),))
        return None

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Let a pod wait until enough pods of its gang have a node, then allow all of them."""
        key = pod_group_key(pod.pod)
        if not key or not self._enabled:
            return None
        group = self._groups.get(key)
        if group is None:
            name = key.partition("/")[2]
            text = f'podgroup.scheduling.k8s.io "{name}" not found'
            return Status.error(f"failed to get podGroup {key}: {text}")
        if self._composite:
            root = self._forest.root_of(group.key)
            if root is None:
                # Its pods may start alone otherwise, as if nothing were above the group.
                return Status.error(self._texts.no_root(group.key, self._forest))
            if isinstance(root, CompositePodGroup):
                return self._permit_in_tree(root)
        if group.spec.scheduling_policy.gang is None:
            return None
        gang = self._states.get(key)
        if gang is None:
            return Status.error(f"pod group state not found for pod group {key}")
        # The pod group cycle schedules all pods of the gang itself and decides about them together:
        # none needs to be activated or allowed.
        in_group_cycle = state.get(POD_GROUP_SCHEDULING_CYCLE) is not None
        if not self._has_enough_scheduled(group):
            # Pods that wait as one with this pod are being bound, or requeued, after it.
            if not in_group_cycle and not self._whole:
                self.handle.activate([other.key for other in gang.unscheduled.values()])
            return _WAIT
        if not in_group_cycle:
            self._allow(gang.assumed)
        return None

    def _permit_in_tree(self, root: CompositePodGroup) -> Status | None:
        if not self._scheduled.is_ready(root):
            return Status.wait(WAIT_SECONDS, self._texts.not_ready(root))
        for waiting in self.handle.waiting_pods():
            group = pod_group_entity_key(waiting.pod.pod)
            state = None if group is None else self._states.get(group.namespaced_name)
            if state is None or waiting.pod.uid not in state.assumed:
                continue
            if self._forest.root_of(group) is root:
                waiting.allow(self.name)
        return None

    def _allow(self, assumed: Container[str]) -> None:
        """Allow the pods with these UIDs."""
        for waiting in self.handle.waiting_pods():
            if waiting.pod.uid in assumed:
                waiting.allow(self.name)

    def _has_started(self, group: Group) -> bool:
        """Return whether a gang was scheduled before, and need not be so again as a whole."""
        if not self._starts_once:
            return False
        if isinstance(group, PodGroup):
            condition = group.condition(self._condition)
            return condition is not None and condition.status == "True"
        started = sum(map(self._has_started, self._forest.children_of(group.key)))
        return started >= group.min_count

    # ---- hints ---------------------------------------------------------------------------------

    def _ungated_by_pod(self, old: Pod | None, new: Pod) -> Collection[str]:
        return self._waiting_in_hierarchy(pod_group_entity_key(new))

    def _ungated_by_group(self, old: Group | None, new: Group) -> Collection[str]:
        return self._waiting_in_hierarchy(new.key)

    def _waiting_in_hierarchy(self, group: EntityKey | None) -> Collection[str]:
        """Return the pods of all groups with the same root as one, as far as they may wait."""
        leaves: Iterable[EntityKey] = () if group is None else (group,)
        if self._composite:
            root = self._forest.root_of(group)
            leaves = () if root is None else self._forest.leaves_of(root.key)
        states = (self._states.get(leaf.namespaced_name) for leaf in leaves)
        pods: list[PodInfo] = []
        for state in states:
            if state is not None:
                pods += state.unscheduled.values()
                if self._deferred_resizes:
                    pods += [placed.pod for placed in state.scheduled()]
        return [pod.key for pod in pods]

    def _is_schedulable_after_pod_added(
        self, pod: PodInfo, old: Pod | None, new: Pod | None
    ) -> bool:
        key = None if new is None else pod_group_entity_key(new)
        return key is not None and self._are_same_hierarchy(pod, key)

    def _is_schedulable_after_group_added(
        self, pod: PodInfo, old: Group | None, new: Group | None
    ) -> bool:
        return new is not None and self._are_same_hierarchy(pod, new.key)

    def _is_schedulable_after_pod_group_updated(
        self, pod: PodInfo, old: Group | None, new: Group | None
    ) -> bool:
        if old is None or new is None or not self._are_same_hierarchy(pod, new.key):
            return False
        started = self._has_started(new) and not self._has_started(old)
        return started or new.min_count < old.min_count

    def _are_same_hierarchy(self, pod: PodInfo, group: EntityKey) -> bool:
        """Return whether a pod belongs to a group, or to one with the same root."""
        own = pod_group_entity_key(pod.pod)
        if not self._composite:
            return own == group
        root, other = self._forest.root_of(own), self._forest.root_of(group)
        return root is not None and other is not None and root.key == other.key
