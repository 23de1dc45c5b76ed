"""The waits of groups of pods: their opportunities, their time and their level.

A group is the pods of one controller, or a pod without one. Its opportunities are counted
together: forty pods that are tried once each let forty pass, as one that is tried forty times does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proreus.addons.delay_scheduling.args import DelaySchedulingArgs
from proreus.objects import Pod, controller_of

_SHORTEST_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 0.5


@dataclass(slots=True)
class PodWait:
    """The wait of a pod: the number of opportunities, and its first one."""

    first_seen: float
    skips: int = 0


@dataclass(slots=True)
class GroupWait:
    """``level``: index of the level at which the group waits now, the number of levels for none.

    ``skips``: opportunities that it let pass there; ``since``: when it let the first one pass,
    None while it has not. ``pods``: those of its pods that wait, by UID.
    """

    level: int = 0
    skips: int = 0
    since: float | None = None
    pods: dict[str, PodWait] = field(default_factory=dict)

    def enter(self, level: int) -> None:
        """Begin to count anew at a level."""
        self.level, self.skips, self.since = level, 0, None


class Waits:
    """The groups that wait; one is forgotten with the last of its pods that waits."""

    def __init__(self, args: DelaySchedulingArgs, now: Callable[[], float]) -> None:
        """``now``: seconds of a clock that is never set back."""
        self._args = args
        self._now = now
        self._groups: dict[str, GroupWait] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def group_of(self, pod: Pod) -> GroupWait:
        """Return the state of a pod's group; one that does not wait is at the tightest level."""
        return self._groups.get(group_uid(pod)) or GroupWait()

    def pod_wait(self, pod: Pod) -> PodWait | None:
        """Return the wait of a pod, None if it has not waited."""
        return self.group_of(pod).pods.get(pod.metadata.uid)

    def may_wait(self, group: GroupWait) -> bool:
        """Return whether the budget of the group's level is not used up."""
        skips, seconds = self._args.skips, self._args.wait_seconds
        if skips and group.skips >= skips[group.level]:
            return False
        waited = 0.0 if group.since is None else self._now() - group.since
        return not seconds or waited < seconds[group.level]

    def skip(self, group: GroupWait, pod: Pod) -> float:
        """Count an opportunity that a pod lets pass; return after how many seconds to offer one."""
        now, uid = self._now(), pod.metadata.uid
        self._groups[group_uid(pod)] = group
        if group.since is None:
            group.since = now
        group.skips += 1
        waiting = group.pods.setdefault(uid, PodWait(now))
        waiting.skips += 1
        retry = min(
            _SHORTEST_RETRY_SECONDS * 2.0 ** min(waiting.skips - 1, 9), _LONGEST_RETRY_SECONDS
        )
        if self._args.wait_seconds:
            retry = min(retry, group.since + self._args.wait_seconds[group.level] - now)
        return max(retry, 0.0)

    def reset(self, pod: Pod) -> None:
        """Return a group to its tightest level: a pod of it got a place that it prefers."""
        if group := self._groups.get(group_uid(pod)):
            group.enter(0)

    def remove(self, pod: Pod) -> PodWait | None:
        """Forget a pod that is bound or gone, and its group if it was the last one that waited.

        Return the wait of the pod.
        """
        key = group_uid(pod)
        group = self._groups.get(key)
        if group is None:
            return None
        waited = group.pods.pop(pod.metadata.uid, None)
        if not group.pods:
            del self._groups[key]
        return waited


def group_uid(pod: Pod) -> str:
    """Return the UID of a pod's controller, its own if it has none."""
    owner = controller_of(pod.metadata)
    return pod.metadata.uid if owner is None else owner.uid
