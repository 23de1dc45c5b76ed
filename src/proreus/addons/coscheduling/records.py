"""The state of groups: their members, the ones with a node, and failures.

All of it is forgotten once a group has neither members nor a PodGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from proreus.objects import Pod

_REPEATED_ATTEMPTS = 3
"""How often pods left over by a failed attempt may begin another one. In the original always: it
ends there because most of the rejected pods still count while the next one is tried."""


class GroupAttempts:
    """The attempts of one group, which begin with one of its pods and end with another.

    The first pod that gets a node has its siblings activated. When one of them fits nowhere, all
    that wait are rejected, but siblings that were not tried yet stay in the active queue. The next
    of them may get one of the nodes that just became free, and begin another attempt, which fails
    alike: of 50 pods on 30 nodes, the group would be tried without end, and no other group in its
    place. Pods are given by UID.
    """

    def __init__(self) -> None:
        self._untried: set[str] = set()
        self._left_over: set[str] = set()
        self._repeated = 0

    def may_begin(self, uid: str) -> bool:
        """Return whether a pod may be the first one of another attempt.

        One that was activated for an earlier attempt is not, after a few of them: no event has said
        since that the group may fit now. It is no longer left over then.
        """
        if uid not in self._left_over or self._repeated < _REPEATED_ATTEMPTS:
            return True
        self._left_over.discard(uid)
        return False

    def begin(self, uid: str, siblings: Iterable[Pod]) -> None:
        """Begin an attempt with a pod that activates its siblings."""
        self._repeated = self._repeated + 1 if uid in self._left_over else 0
        self._left_over = set()
        self._untried = {
            one.metadata.uid
            for one in siblings
            # A gated pod is not activated, and enters the queue by an event.
            if not one.spec.node_name and not one.spec.scheduling_gates
        }

    def tried(self, uid: str) -> None:
        """Record that a pod got a node, fitted nowhere, or is gone."""
        self._untried.discard(uid)
        self._left_over.discard(uid)

    def fail(self) -> None:
        """End the attempt: one of its pods fits nowhere."""
        self._left_over |= self._untried
        self._untried = set()


@dataclass
class Record:
    """One group. Times are in seconds of ``Clock.monotonic`` unless they say otherwise.

    ``members``: all pods of the group by UID, as the informer has them. ``gated``: UIDs of those
    with scheduling gates. ``assigned``: UIDs of those with a node, also while they wait for the
    others at Permit; ``waiting`` are those that are not bound, ``held`` those that Permit holds and
    that were neither allowed nor rejected, in their order. ``failed_at``: when the group failed
    last, in seconds since the epoch. ``satisfied``: whether it has had enough pods.
    ``backs_off_until``, ``permitted_until``: until when it is not tried, and until when its
    resources need not be added up again.
    """

    members: dict[str, Pod] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    held: dict[str, None] = field(default_factory=dict)
    failed_at: float | None = None
    satisfied: bool = False
    backs_off_until: float = 0.0
    permitted_until: float = 0.0
    attempts: GroupAttempts = field(default_factory=GroupAttempts)

    def put(self, pod: Pod) -> None:
        """Add or replace a member."""
        uid = pod.metadata.uid
        self.members[uid] = pod
        if pod.spec.scheduling_gates:
            self.gated.add(uid)
        else:
            self.gated.discard(uid)
        if pod.spec.node_name:
            self.waiting.discard(uid)

    def assign(self, uid: str) -> None:
        """Record that a pod has a node."""
        self.assigned.add(uid)
        member = self.members.get(uid)
        if member is not None and not member.spec.node_name:
            self.waiting.add(uid)

    def is_bound(self, uid: str) -> bool:
        """Return whether the API has a member on a node."""
        member = self.members.get(uid)
        return member is not None and member.spec.node_name != ""

    def unassign(self, uid: str) -> None:
        """Record that a pod has no node any more."""
        self.assigned.discard(uid)
        self.waiting.discard(uid)
        self.held.pop(uid, None)

    def remove(self, uid: str) -> None:
        """Remove a member; one that waits at Permit stays assigned until it is rejected."""
        self.members.pop(uid, None)
        self.gated.discard(uid)
        self.waiting.discard(uid)
        self.attempts.tried(uid)


class Records:
    """The records of all groups by key."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}

    def of(self, key: str) -> Record:
        """Return the record of a group, an empty one for an unknown group."""
        return self._records.get(key) or Record()

    def kept(self, key: str) -> Record:
        """Return the record of a group, and keep it from now on."""
        return self._records.setdefault(key, Record())

    def put_member(self, key: str, pod: Pod, *, is_placed: bool) -> None:
        """Add or replace a member.

        ``is_placed``: it has a node, which it had not, or the pod had not been seen. A pod that is
        labelled as a member while it runs is none that the others waited for: as in the original,
        it is not counted as assigned.
        """
        record = self.kept(key)
        record.put(pod)
        if is_placed:
            record.assign(pod.metadata.uid)
            # It got its node beside enough others, before a restart of the scheduler, say.
            record.satisfied = True

    def remove_member(self, key: str, pod: Pod) -> None:
        """Remove a member that is gone or has finished."""
        record = self._records.get(key)
        if record is None:
            return
        record.remove(pod.metadata.uid)
        if pod.spec.node_name:
            record.unassign(pod.metadata.uid)

    def forget_if_empty(self, key: str) -> None:
        """Forget a group that has no members."""
        record = self._records.get(key)
        if record is not None and not record.members and not record.assigned:
            del self._records[key]
