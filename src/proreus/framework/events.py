"""Cluster events: changes of objects, and the registrations of plugins for them.

A plugin registers the events that may make a pod schedulable that it rejected; the queue matches
each event against the registrations. Actions are plain ints: they are compared on every event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proreus.base.utf8 import valid_text

if TYPE_CHECKING:
    from proreus.framework.pod_info import PodInfo

__all__ = [
    "ADD",
    "ALL",
    "ALL_EVENTS",
    "ANY",
    "ASSIGNED_POD",
    "COMPOSITE_POD_GROUP",
    "CSI_DRIVER",
    "CSI_NODE",
    "CSI_STORAGE_CAPACITY",
    "DELETE",
    "DEVICE_CLASS",
    "NAMESPACE",
    "NODE",
    "PERSISTENT_VOLUME",
    "PERSISTENT_VOLUME_CLAIM",
    "POD",
    "POD_GROUP",
    "RESOURCE_CLAIM",
    "RESOURCE_SLICE",
    "STORAGE_CLASS",
    "TARGET_POD",
    "UNSCHEDULABLE_POD",
    "UNSCHEDULED_POD",
    "UPDATE",
    "UPDATE_NODE_ALLOCATABLE",
    "UPDATE_NODE_ANNOTATION",
    "UPDATE_NODE_CONDITION",
    "UPDATE_NODE_DECLARED_FEATURE",
    "UPDATE_NODE_LABEL",
    "UPDATE_NODE_PREEMPTION_POLICY",
    "UPDATE_NODE_TAINT",
    "UPDATE_POD_DELETION_TIMESTAMP",
    "UPDATE_POD_GENERATED_RESOURCE_CLAIM",
    "UPDATE_POD_LABEL",
    "UPDATE_POD_SCALE_DOWN",
    "UPDATE_POD_SCALE_UP",
    "UPDATE_POD_SCHEDULING_GATES_ELIMINATED",
    "UPDATE_POD_TOLERATION",
    "VOLUME_ATTACHMENT",
    "ClusterEvent",
    "PreQueueingHintFn",
    "QueueingHintFn",
    "UngatedPodsFn",
    "plugin_event",
]

QueueingHintFn = Callable[["PodInfo", Any, Any], bool]
"""``hint(pod, old, new)`` returns whether the change may make the pod schedulable. An exception
counts as True."""

UngatedPodsFn = Callable[[Any, Any], Collection[str]]
"""``ungated_pods(old, new)`` returns the keys (``namespace/name``) of pods that may pass PreEnqueue
now; it may name too many. An exception counts as all pods that the plugin gates."""

PreQueueingHintFn = Callable[[Any, Any], Collection[str] | None]
"""``pre_queueing_hint(old, new)`` returns the keys (``namespace/name``) of the pods that the change
may help, before any hint is called; None, or an exception, stands for any pod."""

ADD = 1
"""The object is new; of ``ASSIGNED_POD``: the pod has a node now. Of ``UNSCHEDULED_POD`` it only
occurs with gate GangScheduling."""
DELETE = 2
"""The object is gone; never of ``UNSCHEDULED_POD``."""
UPDATE_NODE_ALLOCATABLE = 4
"""An amount in ``status.allocatable`` changed."""
UPDATE_NODE_LABEL = 8
"""The node's labels changed."""
UPDATE_NODE_TAINT = 16
"""The node's taints changed, or it was uncordoned."""
UPDATE_NODE_CONDITION = 32
"""The status of one of the node's conditions changed."""
UPDATE_NODE_ANNOTATION = 64
"""The node's annotations changed."""
UPDATE_NODE_DECLARED_FEATURE = 128
"""``status.declaredFeatures`` changed."""
UPDATE_NODE_PREEMPTION_POLICY = 256
"""``spec.podPreemptionPolicy`` changed. From Kubernetes 1.37 on."""
UPDATE_POD_LABEL = 512
"""The pod's labels changed."""
UPDATE_POD_SCALE_DOWN = 1024
"""The pod requests less of something than before."""
UPDATE_POD_SCALE_UP = 2048
"""The pod requests more of something than before. From Kubernetes 1.37 on; before it, that is an
update without an action of its own."""
UPDATE_POD_TOLERATION = 4096
"""The pod got another toleration."""
UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 8192
"""The pod's last scheduling gate was removed."""
UPDATE_POD_GENERATED_RESOURCE_CLAIM = 16384
"""The pod's status names other generated ResourceClaims."""
UPDATE_POD_DELETION_TIMESTAMP = 32768
"""The pod is being deleted. kube-scheduler has no action for it: it is an update like others."""
ALL = 65535
"""Everything."""
UPDATE = ALL & ~(ADD | DELETE)
"""Any update, also without an action of its own."""

_ACTION_NAMES = {
    ADD: "Add",
    DELETE: "Delete",
    UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    UPDATE_NODE_LABEL: "UpdateNodeLabel",
    UPDATE_NODE_TAINT: "UpdateNodeTaint",
    UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    UPDATE_NODE_PREEMPTION_POLICY: "UpdateNodePreemptionPolicy",
    UPDATE_POD_LABEL: "UpdatePodLabel",
    UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    UPDATE_POD_SCALE_UP: "UpdatePodScaleUp",
    UPDATE_POD_TOLERATION: "UpdatePodToleration",
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    UPDATE_POD_DELETION_TIMESTAMP: "UpdatePodDeletionTimestamp",
    ALL: "All",
    UPDATE: "Update",
}

POD = "Pod"
"""Any pod: stands for ``ASSIGNED_POD``, ``UNSCHEDULED_POD`` and ``TARGET_POD``."""
ASSIGNED_POD = "AssignedPod"
"""A pod that has a node."""
UNSCHEDULED_POD = "UnscheduledPod"
"""A pod without a node, other than the pod that the queue asks about."""
TARGET_POD = "TargetPod"
"""The waiting pod itself: an update of it wakes that pod alone."""
UNSCHEDULABLE_POD = "UnschedulablePod"
"""Any pod that has no node yet: stands for ``UNSCHEDULED_POD`` and ``TARGET_POD``, which
kube-scheduler 1.36 does not tell apart."""
NODE = "Node"
NAMESPACE = "Namespace"
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
DEVICE_TAINT_RULE = "resource.k8s.io/DeviceTaintRule"
POD_GROUP = "scheduling.k8s.io/PodGroup"
COMPOSITE_POD_GROUP = "scheduling.k8s.io/CompositePodGroup"
ANY = "*"
"""Any resource."""

_STANDS_FOR = {
    POD: frozenset({ASSIGNED_POD, UNSCHEDULED_POD, TARGET_POD, UNSCHEDULABLE_POD}),
    UNSCHEDULABLE_POD: frozenset({UNSCHEDULED_POD, TARGET_POD}),
}


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A kind of change: a ``resource`` and an ``action`` (one bit or more).

    A registration may carry a queueing ``hint`` that looks at the change itself; without one, every
    such event moves the pod. ``label`` is the name in metrics and logs. A PreEnqueue plugin that
    knows which pods an event lets pass names them by ``ungated_pods``; without it, PreEnqueue runs
    again for every pod that the plugin gates. ``pre_queueing_hint`` names the pods that an event
    may help (gate SchedulerPreQueueingHints, from Kubernetes 1.37 on): the plugin's hint is not
    called for others. In 1.37 hints of plugins that name none are not called for them either.
    """

    resource: str
    action: int
    hint: QueueingHintFn | None = field(default=None, compare=False)
    label: str = ""
    ungated_pods: UngatedPodsFn | None = field(default=None, compare=False)
    pre_queueing_hint: PreQueueingHintFn | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Derive the label from resource and action, where none is given.

        Raises ``TypeError`` for fields of the wrong type.
        """
        # As in ``Status``. They are keys of the queue, and the label is one of a metric.
        for name in ("resource", "label"):
            object.__setattr__(self, name, valid_text(name, getattr(self, name)))
        if type(self.action) is not int:
            raise TypeError(f"action must be a whole number, not {self.action!r}")
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
            or incoming.resource in _STANDS_FOR.get(self.resource, ())
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


def all_events(pod_groups: bool, composite: bool = False) -> tuple[ClusterEvent, ...]:
    """Return ``ALL_EVENTS``, with groups if gates GenericWorkload, CompositePodGroup are on."""
    groups = [POD_GROUP] * pod_groups + [COMPOSITE_POD_GROUP] * composite
    return (*ALL_EVENTS, *(ClusterEvent(group, ALL) for group in groups))
