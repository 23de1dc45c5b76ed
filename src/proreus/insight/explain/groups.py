"""The group of a pod: how many of its pods are needed together, and where they are.

Groups come from three places: PodGroups of the API, groups that a plugin provides to the scheduler,
and groups that a plugin keeps to itself, as Coscheduling does in mode ``permit``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from proreus.engine.scheduler import Scheduler
from proreus.framework.pod_group import PodGroupDescription, PodGroupInfo
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import PodsByGroup
from proreus.framework.workload_forest import Group
from proreus.insight.explain.explanation import GroupState
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import Pod
from proreus.objects.scheduling import (
    POD_GROUPS,
    EntityKey,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    pod_group_entity_key,
)


@dataclass(frozen=True)
class PodsOfGroup:
    """A group with its pods.

    ``missing``: the object that does not exist, without which the group is not tried; "" if all do.
    ``known``: how many pods there are; ``scheduled``: how many of them have a node. ``waiting``:
    those in the queue. ``root``: the topmost group, with ``pods`` by PodGroup, as the engine tries
    them; None if it is not known. ``is_whole``: whether it waits in the queue as one.
    """

    name: str
    min_count: int = 0
    known: int = 0
    scheduled: int = 0
    missing: str = ""
    waiting: tuple[QueuedPodInfo, ...] = ()
    root: PodGroupInfo | None = None
    pods: PodsByGroup = field(default_factory=dict)
    is_whole: bool = True

    @property
    def state(self) -> GroupState:
        """The group as it is explained."""
        return GroupState(
            name=self.name,
            exists=not self.missing,
            missing=self.missing,
            min_count=self.min_count,
            pods=self.known,
            scheduled=self.scheduled,
            lacking=max(self.min_count - self.known, 0),
        )


def group_of(scheduler: Scheduler, pod: Pod) -> PodsOfGroup | None:
    """Return the group of a pod, as the scheduler knows the pod; None if it has none."""
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    source = None if profile is None else profile.pod_group_source
    described = None if source is None else source.describe_group(pod)
    key = pod_group_entity_key(pod)
    if key is not None and scheduler.schedules_groups:
        return _of_entity(scheduler, key, described)
    return None if described is None else _of_plugin(scheduler, described)


def missing_object_of(scheduler: Scheduler, pod: Pod) -> str:
    """Return the object without which a pod's PodGroup is not tried, "" if there is none.

    Unlike ``group_of`` it does not go through the group's pods, so that lists can ask for each.
    """
    key = pod_group_entity_key(pod)
    if key is None or not scheduler.schedules_groups or _root(scheduler, key) is not None:
        return ""
    return _missing(scheduler, key, key.namespaced_name)


def _of_entity(
    scheduler: Scheduler, key: EntityKey, described: PodGroupDescription | None
) -> PodsOfGroup:
    """Return a group that the scheduler knows, or is to know."""
    root = _root(scheduler, key)
    leaves = _leaves(scheduler, key, root)
    states = {leaf: scheduler.cache.pod_group_states.get(leaf.namespaced_name) for leaf in leaves}
    waiting = _waiting(
        scheduler, (p.key for one in states.values() if one for p in one.unscheduled.values())
    )
    # A tree of the API counts child groups: what is said of pods is of the pod's own group.
    of_tree = root is not None and root.key.is_composite and described is None
    counted = [state for leaf, state in states.items() if state and (not of_tree or leaf == key)]
    group = PodsOfGroup(
        key.namespaced_name if described is None else described.name,
        known=sum(state.all_pods_count for state in counted),
        scheduled=sum(state.scheduled_count for state in counted),
        waiting=waiting,
    )
    if root is None:
        return replace(group, missing=_missing(scheduler, key, group.name))
    own = scheduler.cache.workload_forest.get(key) or root
    pods: dict[EntityKey, list[QueuedPodInfo]] = {}
    for queued in waiting:
        leaf = pod_group_entity_key(queued.pod)
        assert leaf is not None
        pods.setdefault(leaf, []).append(queued)
    _sort(scheduler, pods)
    return replace(
        group,
        min_count=own.min_count if described is None else described.min_count,
        root=_info(scheduler, root, pods),
        pods=pods,
    )


def _root(scheduler: Scheduler, key: EntityKey) -> Group | None:
    if scheduler.pod_group_cycle is None:
        # The queue of 1.36 knows pods alone, and no forest.
        return _pod_group_of_1_36(scheduler, key)
    return scheduler.cache.workload_forest.root_of(key)


def _pod_group_of_1_36(scheduler: Scheduler, key: EntityKey) -> PodGroup | None:
    return scheduler.environment.stores.store(POD_GROUPS).get(key.namespaced_name)


def _leaves(scheduler: Scheduler, key: EntityKey, root: Group | None) -> list[EntityKey]:
    if root is None or not root.key.is_composite:
        return [key]
    return scheduler.cache.workload_forest.leaves_of(root.key)


def _info(scheduler: Scheduler, root: Group, pods: PodsByGroup) -> PodGroupInfo | None:
    if scheduler.pod_group_cycle is not None:
        return scheduler.cache.workload_forest.pod_group_info(root.key, pods)
    assert isinstance(root, PodGroup)
    members = tuple(queued.info for queued in pods.get(root.key, ()))
    return PodGroupInfo(root.key.namespace, root.key.name, members, root)


def _sort(scheduler: Scheduler, pods: Mapping[EntityKey, list[QueuedPodInfo]]) -> None:
    """Sort pods as they are tried: by their ranks, else as they wait."""
    for queued in pods.values():
        profile = scheduler.profiles.get(queued[0].pod.spec.scheduler_name)
        source = None if profile is None else profile.pod_group_source
        queued.sort(key=lambda one: (-one.info.priority, one.timestamp, one.info.name))
        if source is not None:
            queued.sort(key=lambda one: source.pod_rank(one.pod))


def _missing(scheduler: Scheduler, key: EntityKey, name: str) -> str:
    """Return the object without which a group is not tried."""
    forest = scheduler.cache.workload_forest
    topmost = forest.topmost_known(key)
    parent = None if topmost is None else forest.parent_of(topmost)
    if parent is not None:
        return f"CompositePodGroup {parent.namespaced_name}"
    return f"PodGroup {name}"


def _of_plugin(scheduler: Scheduler, described: PodGroupDescription) -> PodsOfGroup:
    """Return a group that a plugin keeps to itself: its pods are tried one by one."""
    waiting = _waiting(scheduler, described.pods)
    namespace, _, name = described.name.partition("/")
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(described.min_count))
    as_object = PodGroup(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=PodGroupSpec(scheduling_policy=policy),
    )
    pods = {as_object.key: list(waiting)}
    return PodsOfGroup(
        described.name,
        min_count=described.min_count,
        known=len(described.pods),
        scheduled=described.placed,
        missing="" if described.exists else f"PodGroup {described.name}",
        waiting=waiting,
        root=PodGroupInfo(namespace, name, tuple(one.info for one in waiting), as_object),
        pods=pods,
        is_whole=False,
    )


def _waiting(scheduler: Scheduler, keys: Iterable[str]) -> tuple[QueuedPodInfo, ...]:
    """Return those pods of the queue that could be tried, by ``namespace/name``."""
    found = (scheduler.queue.get(key) for key in keys)
    return tuple(
        queued for queued in found if queued is not None and not queued.pod.spec.scheduling_gates
    )
