"""The events that may make a pod schedulable which DynamicResources rejected, and their hints."""

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
"""Return the pod's claims; raises ``ClaimError``."""


def events(claims_of: ClaimsOf, uses_node_allocatable: bool) -> tuple[ClusterEvent, ...]:
    """Return the events that the plugin registers, with queueing hints.

    ``uses_node_allocatable``: whether devices may take cpu or memory of the node, so that a pod may
    be rejected because other pods have taken it.
    """

    def is_schedulable_after_claim_change(
        pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> bool:
        try:
            claims = claims_of(pod.pod)
        except ClaimError:
            # PreEnqueue would reject the pod again: it waits until its last claim is there.
            return False
        if new is None:
            return True
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return True  # its devices are free now, and any pod may be waiting for them
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return False
        return old is None or old.status != new.status

    def is_schedulable_after_pod_change(pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
        # The controller names generated claims in the pod's status one by one; all must be there.
        if new is None or new.metadata.uid != pod.uid:
            return False
        try:
            claims_of(new)
        except ClaimError:
            return False
        return True

    # kube-scheduler 1.36 registers no pod events here, so such a pod waits for the flush of the
    # unschedulable pods (docs/plugins/dynamic-resources.md).
    pod_events = (
        ClusterEvent(POD, DELETE | UPDATE_POD_SCALE_DOWN, _is_schedulable_after_pod_event),
    )
    return (
        *(pod_events if uses_node_allocatable else ()),
        ClusterEvent(NODE, ADD | UPDATE_NODE_LABEL | UPDATE_NODE_ALLOCATABLE),
        ClusterEvent(RESOURCE_CLAIM, ADD | UPDATE, is_schedulable_after_claim_change),
        ClusterEvent(POD, UPDATE_POD_GENERATED_RESOURCE_CLAIM, is_schedulable_after_pod_change),
        ClusterEvent(DEVICE_CLASS, ADD | UPDATE),
        ClusterEvent(RESOURCE_SLICE, ADD | UPDATE),
    )


def _is_schedulable_after_pod_event(pod: PodInfo, old: Pod, new: Pod | None) -> bool:
    # A pod without a node takes nothing of any.
    return bool((new or old).spec.node_name)
