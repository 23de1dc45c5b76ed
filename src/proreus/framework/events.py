"""Cluster events: what changed, and who is woken by it.

A plugin registers the events that may make a pod schedulable that it rejected; the queue matches
what happened against what was registered. Actions are plain ints: they are compared on every event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proreus.framework.pod_info import PodInfo

QueueingHintFn = Callable[["PodInfo", Any, Any], bool]
"""``hint(pod, old, new)``: whether the change may help the pod. Raising counts as yes."""

UngatedPodsFn = Callable[[Any, Any], Collection[str]]
"""``ungated_pods(old, new)``: keys (``namespace/name``) of the pods that may pass the plugin's gate
now and did not before; others among them do no harm. Raising counts as: all that it gates."""

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

    As a registration it may carry a ``hint`` that looks at the change itself; without one, every
    such change wakes the pod. ``label`` is the name in metrics and logs. A PreEnqueue plugin that
    knows whom it lets in by such a change says so by ``ungated_pods``; without it, every pod that
    it gates is tried at its gate again.
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
        """Whether it stands for anything that may happen."""
        return self.resource == ANY and self.action == ALL

    def matches(self, incoming: ClusterEvent) -> bool:
        """Tell whether this registration covers what happened."""
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
    """Return an event of a plugin's own, for what no watch tells: ``Handle.announce`` tells it."""
    return ClusterEvent(f"{_PLUGIN_EVENT_PREFIX}{name}", UPDATE, hint, name)


def is_announced(resource: str) -> bool:
    """Tell whether the resource of an event is one that plugins announce, not a watched one."""
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
"""What a plugin is taken to register that does not say what it waits for."""


def all_events(pod_groups: bool) -> tuple[ClusterEvent, ...]:
    """Return ``ALL_EVENTS``, with PodGroups where gate GenericWorkload is on."""
    return (*ALL_EVENTS, ClusterEvent(POD_GROUP, ALL)) if pod_groups else ALL_EVENTS
