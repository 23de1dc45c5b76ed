"""A profile as the queue sees it: its PreEnqueue plugins and its event registrations.

The queue does not import the runtime; it gets these values instead of plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from proreus.framework.events import ADD, NODE, UPDATE_NODE_TAINT, ClusterEvent
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status

PreEnqueue = Callable[[PodInfo], Status | None]
"""A PreEnqueue plugin's method. Any status but success gates the pod."""

EventRegistration = tuple[str, ClusterEvent]
"""A plugin's name, and an event that may make pods schedulable that it rejected."""


class QueueProfile(Protocol):
    """A profile as the queue sees it; pods belong to it by ``spec.schedulerName``."""

    @property
    def pre_enqueue(self) -> Mapping[str, PreEnqueue]:
        """PreEnqueue plugins by name, in the profile's order."""
        ...

    @property
    def group_wide(self) -> Collection[str]:
        """The PreEnqueue plugins whose result is the same for all pods of a PodGroup."""
        ...

    @property
    def registrations(self) -> Sequence[EventRegistration]:
        """The result of ``registrations_of`` for each plugin of the profile, in their order."""
        ...


def registrations_of(
    plugin: str, events: Iterable[ClusterEvent], *, implied_taint_event: bool = False
) -> tuple[EventRegistration, ...]:
    """Return a plugin's registrations.

    ``implied_taint_event``: node additions imply taint updates, as in kube-scheduler up to 1.36
    (kubernetes/kubernetes#109437, ``Change.NO_IMPLIED_TAINT_EVENT``).
    """
    registered = tuple(events)
    if implied_taint_event:
        registered = _with_taint_event(registered)
    return tuple((plugin, event) for event in registered)


def _with_taint_event(registered: tuple[ClusterEvent, ...]) -> tuple[ClusterEvent, ...]:
    node_actions = 0
    for event in registered:
        if event.resource == NODE:
            node_actions |= event.action
    # A node often joins with a taint that is removed once it is ready. At the time of the addition
    # the pod is rejected for the taint; without this, nothing would retry it when the taint goes.
    if node_actions & ADD and not node_actions & UPDATE_NODE_TAINT:
        return (*registered, ClusterEvent(NODE, UPDATE_NODE_TAINT))
    return registered
