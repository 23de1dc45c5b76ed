"""The objects that say more about groups than their pods do, as the informers have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from proreus.addons.coscheduling.groups import (
    GANGS,
    LEADER_WORKER_SET,
    VOLCANO,
    VOLCANO_GANGS,
    Gang,
    Group,
    Membership,
)
from proreus.addons.coscheduling.leader_worker_sets import LEADER_WORKER_SETS, LeaderWorkerSet
from proreus.framework import ClusterEvent, Handle, events

Changed = Callable[[str, bool], None]
"""Called with the key of a group whose object has changed, and whether that exists now."""


class GroupObjects:
    """PodGroups of scheduler-plugins and Volcano, and LeaderWorkerSets."""

    def __init__(self, handle: Handle, changed: Changed) -> None:
        self._gangs = handle.store(GANGS)
        self._volcano_gangs = handle.store(VOLCANO_GANGS)
        self._leader_worker_sets = handle.store(LEADER_WORKER_SETS)
        self._changed = changed
        self._keys_of_set: dict[str, set[str]] = {}
        """By key of a LeaderWorkerSet: the keys of its groups that have pods."""
        self._set_of: dict[str, str] = {}
        """The reverse."""
        handle.on_change(GANGS, self._gang_changed)
        handle.on_change(VOLCANO_GANGS, self._volcano_gang_changed)
        handle.on_change(LEADER_WORKER_SETS, self._set_changed)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Return the events of objects that may help the pods of a group."""
        changes = events.ADD | events.UPDATE
        for resource in (GANGS, VOLCANO_GANGS, LEADER_WORKER_SETS):
            yield ClusterEvent(resource.id, changes)

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
        return membership.virtual if gang is None else Group.of(gang, membership.key)

    def _group_of_set(self, membership: Membership) -> Group | None:
        assert membership.virtual is not None
        found = self._leader_worker_sets.get(_key_of_set(membership))
        if found is not None and found.starts_together:
            return membership.virtual
        # Its workers may not exist before the leader runs: to wait for them would be for ever.
        return replace(membership.virtual, min_member=1)

    def _gang_changed(self, old: Gang | None, new: Gang | None) -> None:
        meta = (old or new or Gang()).metadata
        self._changed(f"{meta.namespace}/{meta.name}", new is not None)

    def _volcano_gang_changed(self, old: Gang | None, new: Gang | None) -> None:
        meta = (old or new or Gang()).metadata
        self._changed(f"{meta.namespace}/{VOLCANO}/{meta.name}", new is not None)

    def _set_changed(self, old: LeaderWorkerSet | None, new: LeaderWorkerSet | None) -> None:
        meta = (old or new or LeaderWorkerSet()).metadata
        for group in tuple(self._keys_of_set.get(f"{meta.namespace}/{meta.name}", ())):
            self._changed(group, new is not None)


def _key_of_set(membership: Membership) -> str:
    return f"{membership.namespace}/{membership.owner}"
