"""The objects that say more about groups than their pods do, as the informers have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from proreus.addons.coscheduling.groups import (
    GANGS,
    LEADER_WORKER_SET,
    SOURCES_OF_GANGS,
    VOLCANO,
    VOLCANO_GANGS,
    Gang,
    Group,
    Membership,
    group_key_of,
)
from proreus.framework import ClusterEvent, Handle, PodInfo, events
from proreus.objects import ApiStruct, ObjectMeta, Resource

EXCLUSIVE_TOPOLOGY = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""The annotation with which each group has a topology domain of its own: the leader's, which its
workers select, so that they are created once the leader has a node."""


class LeaderWorkerSetSpec(ApiStruct, frozen=True):
    """``startup_policy``: with ``LeaderReady`` the workers are created once the leader is ready."""

    startup_policy: str = "LeaderCreated"


class LeaderWorkerSet(ApiStruct, frozen=True):
    """A LeaderWorkerSet of leaderworkerset.x-k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()

    @property
    def starts_together(self) -> bool:
        """Whether the workers of a group are created before its leader has a node."""
        return (
            self.spec.startup_policy != "LeaderReady"
            and EXCLUSIVE_TOPOLOGY not in self.metadata.annotations
        )


LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io",
    "v1",
    "leaderworkersets",
    "LeaderWorkerSet",
    True,
    LeaderWorkerSet,
    custom=True,
)


Changed = Callable[[str, bool], None]
"""Called with the key of a group after a change of its object, and whether that exists now."""

KeysOf = Callable[[ObjectMeta], Sequence[str]]
"""Returns the keys of the groups that an object with some metadata describes."""


class GroupObjects:
    """PodGroups of scheduler-plugins and Volcano, and LeaderWorkerSets."""

    def __init__(self, handle: Handle, changed: Changed) -> None:
        self._gangs = handle.store(GANGS)
        self._volcano_gangs = handle.store(VOLCANO_GANGS)
        self._leader_worker_sets = handle.store(LEADER_WORKER_SETS)
        self._changed = changed
        self._parsed: dict[str, tuple[Gang, Group]] = {}
        """By key of a group: the parsed version of its PodGroup, and the group."""
        self._keys_of_set: dict[str, set[str]] = {}
        """By key of a LeaderWorkerSet: the keys of its groups that have pods."""
        self._set_of: dict[str, str] = {}
        """The reverse."""
        self._kinds: tuple[tuple[Resource[Any], KeysOf], ...] = (
            (GANGS, lambda meta: [group_key_of(source, meta) for source in SOURCES_OF_GANGS]),
            (VOLCANO_GANGS, lambda meta: [group_key_of(VOLCANO, meta)]),
            (LEADER_WORKER_SETS, self._keys_of_groups),
        )
        for resource, keys_of in self._kinds:
            note: Any = partial(self._note_change, keys_of)
            handle.on_change(resource, note)

    def events_to_register(
        self,
        hint: Callable[[PodInfo, str], bool] | None = None,
        ungated_pods: events.UngatedPodsFn | None = None,
    ) -> Iterable[ClusterEvent]:
        """Return the events of objects that may help the pods of a group.

        ``hint``: whether a pod may be helped by a change of the group that has a key.
        """
        # Pods may say themselves how many are enough, and count once the object is gone.
        changes = events.ADD | events.UPDATE | (0 if hint is None else events.DELETE)
        for resource, keys_of in self._kinds:
            yield ClusterEvent(
                resource.id,
                changes,
                None if hint is None else _hint(keys_of, hint),
                ungated_pods=ungated_pods,
            )

    def has_pod_group(self, key: str) -> bool:
        """Return whether a PodGroup of scheduler-plugins has a group's key."""
        return key in self._gangs

    def note(self, membership: Membership) -> None:
        """Note that a group has a pod: ``changed`` is called if its LeaderWorkerSet changes."""
        if membership.source != LEADER_WORKER_SET:
            return
        key, of_set = membership.key, _key_of_set(membership)
        if self._set_of.get(key) != of_set:
            self.forget(key)
            self._set_of[key] = of_set
            self._keys_of_set.setdefault(of_set, set()).add(key)

    def forget(self, key: str) -> None:
        """Forget a group that has no pods any more, by its key."""
        self._parsed.pop(key, None)
        of_set = self._set_of.pop(key, None)
        if of_set is not None:
            keys = self._keys_of_set[of_set]
            keys.discard(key)
            if not keys:
                del self._keys_of_set[of_set]

    def group_of(self, membership: Membership) -> Group | None:
        """Return a group; None while its PodGroup does not exist."""
        if membership.source == LEADER_WORKER_SET:
            return self._group_of_set(membership)
        gangs = self._volcano_gangs if membership.source == VOLCANO else self._gangs
        gang = gangs.get(membership.object_key)
        if gang is None:
            return membership.virtual
        known = self._parsed.get(membership.key)
        if known is None or known[0] is not gang:
            known = self._parsed[membership.key] = gang, Group.of(gang, membership.key)
        return known[1]

    def _group_of_set(self, membership: Membership) -> Group | None:
        assert membership.virtual is not None
        found = self._leader_worker_sets.get(_key_of_set(membership))
        if found is not None and found.starts_together:
            return membership.virtual
        # Its workers may not exist before the leader runs: to wait for them would be for ever.
        return replace(membership.virtual, min_member=1)

    def _note_change(self, keys_of: KeysOf, old: Any, new: Any) -> None:
        for key in keys_of((old or new).metadata):
            if new is None:
                self._parsed.pop(key, None)
            self._changed(key, new is not None)

    def _keys_of_groups(self, meta: ObjectMeta) -> Sequence[str]:
        return tuple(self._keys_of_set.get(f"{meta.namespace}/{meta.name}", ()))


def _hint(keys_of: KeysOf, hint: Callable[[PodInfo, str], bool]) -> events.QueueingHintFn:
    def helps(pod: PodInfo, old: Any, new: Any) -> bool:
        return any(hint(pod, key) for key in keys_of((new or old).metadata))

    return helps


def _key_of_set(membership: Membership) -> str:
    return f"{membership.namespace}/{membership.owner}"
