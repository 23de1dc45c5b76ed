"""What the queue asks of a profile: who may keep a pod out, and who waits for which event.

The runtime knows plugins, the queue does not: they meet in these two values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from proreus.framework.events import ADD, NODE, UPDATE_NODE_TAINT, ClusterEvent
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status

PreEnqueue = Callable[[PodInfo], Status | None]
"""A PreEnqueue plugin's method. Anything but None or a success keeps the pod out."""

EventRegistration = tuple[str, ClusterEvent]
"""A plugin's name, and an event that may help the pods that it rejected."""


class QueueProfile(Protocol):
    """A profile as the queue sees it; pods belong to it by ``spec.schedulerName``."""

    @property
    def pre_enqueue(self) -> Mapping[str, PreEnqueue]:
        """PreEnqueue plugins by name, in the profile's order."""
        ...

    @property
    def registrations(self) -> Sequence[EventRegistration]:
        """What ``registrations_of`` returned for each plugin of the profile, in their order."""
        ...


def registrations_of(plugin: str, events: Iterable[ClusterEvent]) -> tuple[EventRegistration, ...]:
    """Return what a plugin registers, given what it asks for.

    Who waits for new nodes and does not mention taints is woken by changed taints too: a node may
    have come with a taint that another plugin minded, and lost it since (kube-scheduler does so
    since kubernetes/kubernetes#109437).
    """
    asked = tuple(events)
    node_actions = 0
    for event in asked:
        if event.resource == NODE:
            node_actions |= event.action
    if node_actions & ADD and not node_actions & UPDATE_NODE_TAINT:
        asked = (*asked, ClusterEvent(NODE, UPDATE_NODE_TAINT))
    return tuple((plugin, event) for event in asked)
