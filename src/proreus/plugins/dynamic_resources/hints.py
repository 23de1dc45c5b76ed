"""Which events may help a pod that DynamicResources rejected."""

from __future__ import annotations

from collections.abc import Callable

from proreus.framework.events import (
    ADD,
    DELETE,
    DEVICE_CLASS,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    UPDATE,
    UPDATE_NODE_ALLOCATABLE,
    UPDATE_NODE_LABEL,
    UPDATE_POD_GENERATED_RESOURCE_CLAIM,
    UPDATE_POD_SCALE_DOWN,
    ClusterEvent,
)
from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import ResourceClaim
from proreus.plugins.dynamic_resources.claims import ClaimError

ClaimsOf = Callable[[Pod], tuple[ResourceClaim, ...]]
"""Returns the pod's claims; raises ``ClaimError``."""


def events(claims_of: ClaimsOf, uses_node_allocatable: bool) -> tuple[ClusterEvent, ...]:
    """Return what the plugin registers.

    ``uses_node_allocatable``: whether devices take of the node, so that it may lack room for them.
    """

    def is_schedulable_after_claim_change(
        pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> bool:
        try:
            claims = claims_of(pod.pod)
        except ClaimError:
            # The pod is gated: it becomes active when its last claim appears, not before.
            return False
        if new is None:
            return True
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return True  # devices came free, whosever they were
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return False
        return old is None or old.status != new.status

    def is_schedulable_after_pod_change(pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
        if new is None or new.metadata.uid != pod.uid:
            return False
        try:
            claims_of(new)
        except ClaimError:
            return False
        return True

    room = (ClusterEvent(POD, DELETE | UPDATE_POD_SCALE_DOWN, _is_schedulable_after_pod_event),)
    return (
        *(room if uses_node_allocatable else ()),
        ClusterEvent(NODE, ADD | UPDATE_NODE_LABEL | UPDATE_NODE_ALLOCATABLE),
        ClusterEvent(RESOURCE_CLAIM, ADD | UPDATE, is_schedulable_after_claim_change),
        ClusterEvent(POD, UPDATE_POD_GENERATED_RESOURCE_CLAIM, is_schedulable_after_pod_change),
        ClusterEvent(DEVICE_CLASS, ADD | UPDATE),
        ClusterEvent(RESOURCE_SLICE, ADD | UPDATE),
    )


def _is_schedulable_after_pod_event(pod: PodInfo, old: Pod, new: Pod | None) -> bool:
    return bool((new or old).spec.node_name)
