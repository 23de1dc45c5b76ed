"""Mode ``permit``: whether enough pods of a group, and of all that start with it, have a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proreus.addons.coscheduling.groups import Group
from proreus.addons.coscheduling.koordinator import MatchPolicy
from proreus.addons.coscheduling.records import Record, Records
from proreus.objects import Pod


class GroupQuorum:
    """Counts the pods of groups. ``find_group``: see ``Coscheduling.group``."""

    def __init__(self, records: Records, find_group: Callable[[Pod], Group | None]) -> None:
        self._records = records
        self._find_group = find_group

    def may_start_alone(self, group: Group) -> bool:
        """Return whether a group had its minimum once, and needs it no more."""
        once = group.policy is MatchPolicy.ONCE_SATISFIED
        return once and self._records.of(group.key).satisfied

    def missing(self, group: Group) -> int:
        """Return how many pods of a group have to get a node yet, 0 if there are enough."""
        if self.may_start_alone(group):
            return 0
        return max(0, group.min_member - _counted(self._records.of(group.key), group))

    def is_reached(self, group: Group) -> bool:
        """Return whether a group may start, and so may all gangs that start with it."""
        for key in group.together:
            one = group if key == group.key else self.group_of_key(key)
            if one is None or self.missing(one):
                return False
        return True

    def members(self, group: Group) -> Iterator[Pod]:
        """Yield the pods of a group, and of all that start with it."""
        for key in group.together:
            yield from self._records.of(key).members.values()

    def has_waiting(self, group: Group) -> bool:
        """Return whether a pod of a group, or of one that starts with it, waits at Permit."""
        return any(self._records.of(key).waiting for key in group.together)

    def note(self, group: Group) -> None:
        """Record that a group may start, and all that start with it."""
        for key in group.together:
            record = self._records.kept(key)
            record.satisfied = True
            record.failed_at = None

    def group_of_key(self, key: str) -> Group | None:
        """Return a group by its key; None if none of its pods is known."""
        pod = next(iter(self._records.of(key).members.values()), None)
        return None if pod is None else self._find_group(pod)


def _counted(record: Record, group: Group) -> int:
    if group.policy is MatchPolicy.ONLY_WAITING:
        return len(record.waiting)
    return len(record.assigned)
