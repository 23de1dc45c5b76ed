"""When events have a group tried again that a plugin provides and that did not fit.

The end of a gang is as many events as it has pods. Were all waiting groups tried at each of them,
that would cost as much as to place them as often, and in vain: half of the room helps no group. So
a group is tried once the pods that went have made room for as many of its pods as it lacked. The
count is rough (nobody looks whether the room is on one node, or on one that the group may use), so
``PutOffGroups.flush`` gives what was put off to the queue once a second, and no group is tried by
count more often than a few times in between.

Example: of 50 pods 30 fit, and pods of the same size are deleted one by one. The twentieth deletion
has the group tried; the nineteen before it put it off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proreus.framework.events import ASSIGNED_POD, DELETE, ClusterEvent
from proreus.framework.pod_info import PodInfo
from proreus.framework.queued_pod_group import QueuedEntityInfo, QueuedPodGroupInfo

_ATTEMPTS_BETWEEN_FLUSHES = 3


class PutOffGroups:
    """The groups for which something has happened, though maybe not enough."""

    def __init__(self) -> None:
        self._events: dict[str, ClusterEvent] = {}
        self._attempts: dict[str, int] = {}

    def puts_off(self, queued: QueuedEntityInfo, event: ClusterEvent, old: Any) -> bool:
        """Return whether a group that an event helps waits for more events, or for ``flush``.

        Groups of the API do not: they are tried when kube-scheduler tries them.
        """
        if not isinstance(queued, QueuedPodGroupInfo) or not queued.root.is_provided:
            return False
        if queued.gated or event.wildcard:
            return False
        queued.room_made += _room_made(queued, event, old)
        attempts = self._attempts.get(queued.key, 0)
        if queued.room_made < queued.lacking or attempts >= _ATTEMPTS_BETWEEN_FLUSHES:
            self._events[queued.key] = event
            return True
        self._attempts[queued.key] = attempts + 1
        self._events.pop(queued.key, None)
        return False

    def flush(self) -> Mapping[str, ClusterEvent]:
        """Return the keys of the groups that were put off, with the last event of each."""
        events, self._events = self._events, {}
        self._attempts.clear()
        return events


def _room_made(group: QueuedPodGroupInfo, event: ClusterEvent, old: Any) -> int:
    """Return for how many more pods of a group there may be room, at most, after an event.

    An event that is not the end of a pod may make room for any number.
    """
    if event.resource != ASSIGNED_POD or not event.action & DELETE or old is None:
        return group.lacking
    freed = PodInfo(old).requests.amounts
    needed = next((one for one in group.queued_pods if one.rejectors), group).info.requests.amounts
    # A pod more also where the amounts are too small for one: they complete what was free before.
    by_resource = [-(-freed.get(name, 0) // amount) for name, amount in needed.items() if amount]
    return max(1, *by_resource) if by_resource else 1
