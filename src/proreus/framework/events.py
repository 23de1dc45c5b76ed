"""Cluster events: what changed, and which plugins registered for it.

A plugin registers the events that may make a pod schedulable that it rejected; the queue matches
each event against the registrations. Actions are plain ints: they are compared on every event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proreus.framework.pod_info import PodInfo

QueueingHintFn = Callable[["PodInfo", Any, Any], bool]
"""``hint(pod, old, new)`` returns whether the change may make the pod schedulable. An exception
counts as True."""

UngatedPodsFn = Callable[[Any, Any], Collection[str]]
"""``ungated_pods(old, new)`` returns the keys (``namespace/name``) of pods that may pass PreEnqueue
now; it may name too many. An exception counts as all pods that the plugin gates."""

ADD = 1
DELETE = 2
UPDATE_NODE_ALLOCATABLE = 4
UPDATE_NODE_LABEL = 8
UPDATE_NODE_TAINT = 16
UPDATE_NODE_CONDITION = 32
UPDATE_NODE_ANNOTATION = 64
UPDATE_NODE_DECLARED_FEATURE = 128
UPDATE_POD_LABEL = 256
UPDATE_POD_SCALE_DOWN = 512
UPDATE_POD_TOLERATION = 1024
UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 2048
UPDATE_POD_GENERATED_RESOURCE_CLAIM = 4096
ALL = 8191
UPDATE = ALL & ~(ADD | DELETE)

_ACTION_NAMES = {
    ADD: "Add",
    DELETE: "Delete",
    UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    UPDATE_NODE_LABEL: "UpdateNodeLabel",
    UPDATE_NODE_TAINT: "UpdateNodeTaint",
    UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    UPDATE_POD_LABEL: "UpdatePodLabel",
    UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    UPDATE_POD_TOLERATION: "UpdatePodToleration",
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    ALL: "All",
    UPDATE: "Update",
}

POD = "Pod"
ASSIGNED_POD = "AssignedPod"
UNSCHEDULABLE_POD = "UnschedulablePod"
NODE = "Node"
PERSISTENT_VOLUME = "PersistentVolume"
PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
CSI_NODE = "storage.k8s.io/CSINode"
CSI_DRIVER = "storage.k8s.io/CSIDriver"
VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
STORAGE_CLASS = "storage.k8s.io/StorageClass"
RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
DEVICE_CLASS = "resource.k8s.io/DeviceClass"
POD_GROUP = "scheduling.k8s.io/PodGroup"
ANY = "*"

_POD_RESOURCES = frozenset({ASSIGNED_POD, UNSCHEDULABLE_POD})


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A kind of change: a resource and what was done to it (one or more action bits).

    A registration may carry a queueing ``hint`` that looks at the change itself; without one, every
    such event moves the pod. ``label`` is the name in metrics and logs. A PreEnqueue plugin that
    knows which pods an event lets pass names them by ``ungated_pods``; without it, PreEnqueue runs
    again for every pod that the plugin gates.
    """

    resource: str
    action: int
    hint: QueueingHintFn | None = field(default=None, compare=False)
    label: str = ""
    ungated_pods: UngatedPodsFn | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Derive the label from resource and action, where none is given."""
        if not self.label:
            name = _ACTION_NAMES.get(self.action) or "|".join(
                text for bit, text in _ACTION_NAMES.items() if bit & self.action and bit < UPDATE
            )
            object.__setattr__(self, "label", f"{self.resource}{name}")

    @property
    def wildcard(self) -> bool:
        """Whether it matches every event."""
        return self.resource == ANY and self.action == ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """Return whether this registration covers an event."""
        if self.wildcard:
            return True
        same = (
            self.resource == incoming.resource
            or self.resource == ANY
            or (self.resource == POD and incoming.resource in _POD_RESOURCES)
        )
        # The numeric comparison is kube-scheduler's own: a generic Update is covered only by
        # a registration that is at least as wide.
        return same and bool(self.action & incoming.action) and incoming.action <= self.action


_PLUGIN_EVENT_PREFIX = "plugin/"


def plugin_event(name: str, hint: QueueingHintFn | None = None) -> ClusterEvent:
    """Return an event of a plugin's own, which it reports by ``Handle.announce``."""
    return ClusterEvent(f"{_PLUGIN_EVENT_PREFIX}{name}", UPDATE, hint, name)


def is_announced(resource: str) -> bool:
    """Return whether an event's resource is announced by plugins instead of watched."""
    return resource.startswith(_PLUGIN_EVENT_PREFIX)


ASSIGNED_POD_ADD = ClusterEvent(ASSIGNED_POD, ADD)
ASSIGNED_POD_UPDATE = ClusterEvent(ASSIGNED_POD, UPDATE)
ASSIGNED_POD_DELETE = ClusterEvent(ASSIGNED_POD, DELETE)
UNSCHEDULABLE_POD_ADD = ClusterEvent(UNSCHEDULABLE_POD, ADD)
UNSCHEDULABLE_POD_UPDATE = ClusterEvent(UNSCHEDULABLE_POD, UPDATE)
UNSCHEDULABLE_POD_DELETE = ClusterEvent(UNSCHEDULABLE_POD, DELETE)
NODE_ADD = ClusterEvent(NODE, ADD)
NODE_DELETE = ClusterEvent(NODE, DELETE)
UNSCHEDULABLE_TIMEOUT = ClusterEvent(ANY, ALL, label="UnschedulableTimeout")
FORCE_ACTIVATE = ClusterEvent(ANY, ALL, label="ForceActivate")

SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POP_FROM_BACKOFF = "PopFromBackoffQ"

ALL_EVENTS: tuple[ClusterEvent, ...] = tuple(
    ClusterEvent(resource, ALL)
    for resource in (
        POD,
        NODE,
        PERSISTENT_VOLUME,
        PERSISTENT_VOLUME_CLAIM,
        CSI_NODE,
        CSI_DRIVER,
        CSI_STORAGE_CAPACITY,
        STORAGE_CLASS,
        RESOURCE_CLAIM,
        DEVICE_CLASS,
    )
)
"""The registrations of a plugin that does not define ``events_to_register``."""


def all_events(pod_groups: bool) -> tuple[ClusterEvent, ...]:
    """Return ``ALL_EVENTS``, with PodGroups where gate GenericWorkload is on."""
    return (*ALL_EVENTS, ClusterEvent(POD_GROUP, ALL)) if pod_groups else ALL_EVENTS
