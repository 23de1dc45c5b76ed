"""What is remembered of groups: their members, who has a node, and when they failed.

All of it is forgotten once a group has neither members nor a PodGroup.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from proreus.addons.coscheduling.group_attempts import GroupAttempts
from proreus.objects import Pod


@dataclass
class Record:
    """One group. Times are in seconds of ``Clock.monotonic`` unless they say otherwise.

    ``members``: all pods of the group by UID, as the informer has them. ``assigned``: UIDs of those
    with a node, also while they wait for the others at Permit. ``failed_at``: when the group failed
    last, in seconds since the epoch. ``satisfied``: whether it has had enough pods.
    ``backs_off_until``, ``permitted_until``: until when it is not tried, and until when its
    resources need not be added up again.
    """

    members: dict[str, Pod] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    failed_at: float | None = None
    satisfied: bool = False
    backs_off_until: float = 0.0
    permitted_until: float = 0.0
    attempts: GroupAttempts = field(default_factory=GroupAttempts)


class Records:
    """The records of all groups by key."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}

    def of(self, key: str) -> Record:
        """Return the record of a group, an empty one if nothing is known of it."""
        return self._records.get(key) or Record()

    def kept(self, key: str) -> Record:
        """Return the record of a group, which is kept from now on."""
        return self._records.setdefault(key, Record())

    def put_member(self, key: str, pod: Pod, *, is_placed: bool) -> None:
        """Add or replace a member.

        ``is_placed``: it has a node, which it had not, or the pod had not been seen. A pod that is
        labelled as a member while it runs is none that the others waited for: as in the original,
        it is not counted as assigned.
        """
        record = self.kept(key)
        record.members[pod.metadata.uid] = pod
        if is_placed:
            record.assigned.add(pod.metadata.uid)
            # It got its node beside enough others, before a restart of the scheduler, say.
            record.satisfied = True

    def remove_member(self, key: str, pod: Pod) -> None:
        """Remove a member that is gone or has finished."""
        record = self._records.get(key)
        if record is None:
            return
        record.members.pop(pod.metadata.uid, None)
        record.attempts.tried(pod.metadata.uid)
        if pod.spec.node_name:
            record.assigned.discard(pod.metadata.uid)

    def forget_if_empty(self, key: str) -> None:
        """Forget a group that has no members."""
        record = self._records.get(key)
        if record is not None and not record.members and not record.assigned:
            del self._records[key]

    def keys(self) -> Collection[str]:
        """Return the keys of all groups that are known."""
        return self._records.keys()
