"""The events that may make a pod schedulable which DynamicResources rejected, and their hints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from proreus.framework.events import (
    ADD,
    DELETE,
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
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
    plugin_event,
)
from proreus.framework.handle import Handle
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.objects.devices import (
    RESOURCE_SLICES,
    DeviceClass,
    DeviceTaintRule,
    ResourceSlice,
)
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import ResourceClaim
from proreus.plugins.dynamic_resources.claims import ClaimError
from proreus.plugins.dynamic_resources.devices.taint_rules import selects_some
from proreus.plugins.dynamic_resources.dra_manager import DRAManager

ClaimsOf = Callable[[Pod], tuple[ResourceClaim, ...]]
"""Return the pod's claims; raises ``ClaimError``."""


def events(handle: Handle, manager: DRAManager, claims_of: ClaimsOf) -> Iterable[ClusterEvent]:
    """Return the events that the plugin registers, with queueing hints."""
    gates, features, index = handle.feature_gates, manager.features, manager.pods_of_claims
    slices = handle.store(RESOURCE_SLICES)

    def is_schedulable_after_claim_change(
        pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> bool:
        # A claim usually loses its allocation before it is deleted, which is an event of its own.
        if new is None:
            return old is None or old.status.allocation is not None
        try:
            claims = claims_of(pod.pod)
        except ClaimError:
            # PreEnqueue would reject the pod again: it waits until its last claim is there.
            return False
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

    found = [
        ClusterEvent(NODE, ADD | UPDATE_NODE_LABEL | UPDATE_NODE_ALLOCATABLE),
        ClusterEvent(
            RESOURCE_CLAIM,
            ADD | UPDATE | DELETE,
            is_schedulable_after_claim_change,
            ungated_pods=index.ungated_by,
            pre_queueing_hint=(
                index.concerned_by if gates.enabled("SchedulerPreQueueingHints") else None
            ),
        ),
        *pod_registrations(
            gates,
            target=UPDATE_POD_GENERATED_RESOURCE_CLAIM,
            hint=is_schedulable_after_pod_change,
        ),
        ClusterEvent(DEVICE_CLASS, ADD | UPDATE),
        ClusterEvent(DEVICE_CLASS, DELETE, _is_schedulable_after_class_deleted),
        ClusterEvent(RESOURCE_SLICE, ADD | UPDATE),
        claim_restored(claims_of),
        slice_deleted_event(slices),
    ]
    # Other pods may have taken the cpu or memory that devices need. kube-scheduler 1.36 registers
    # no pod events here, so such a pod waits for the flush of the unschedulable pods
    # (docs/plugins/dynamic-resources.md).
    if features.node_allocatable:
        gone = DELETE | UPDATE_POD_SCALE_DOWN
        found.insert(0, ClusterEvent(POD, gone, _is_schedulable_after_pod_event))
    if features.device_taint_rules:
        found.append(taint_rule_event(slices))
    return map(for_claims_alone, found)


CLAIM_RESTORED = plugin_event("ResourceClaimRestored")
"""Announced when an allocation is given up that was in flight: not written yet, or last of all.

In the latter case kube-scheduler up to 1.37 restores the claim in its assume cache to the version
before that write, and so reports that it has lost its allocation.
"""


def claim_restored(claims_of: ClaimsOf) -> ClusterEvent:
    """Return the registration of ``CLAIM_RESTORED``: devices are free for any pod."""

    def is_schedulable(pod: PodInfo, old: None, new: None) -> bool:
        try:
            claims_of(pod.pod)
        except ClaimError:
            return False
        return True

    return plugin_event("ResourceClaimRestored", is_schedulable)


def slice_deleted_event(slices: Mapping[str, ResourceSlice]) -> ClusterEvent:
    """Return the registration of slices that go from a pool that is left: it may be valid now."""

    def pool_is_left(pod: PodInfo, old: ResourceSlice, new: None) -> bool:
        # The same for each of the pods that wait.
        if answered[0] is not old:
            pool = old.spec.driver, old.spec.pool.name
            left = ((one.spec.driver, one.spec.pool.name) == pool for one in slices.values())
            answered[:] = old, any(left)
        return bool(answered[1])

    answered: list[object] = [None, False]
    return ClusterEvent(RESOURCE_SLICE, DELETE, pool_is_left)


def taint_rule_event(slices: Mapping[str, ResourceSlice]) -> ClusterEvent:
    """Return the registration of DeviceTaintRules that change the taints of a published device.

    In kube-scheduler a rule changes the slices that it applies to, as plugins and handlers see
    them, and so every pod that waits for slices is tried again.
    """

    def changes_a_slice(
        pod: PodInfo, old: DeviceTaintRule | None, new: DeviceTaintRule | None
    ) -> bool:
        if old is not None and new is not None and old.spec == new.spec:
            return False
        # The same for each of the pods that wait, of which there may be thousands.
        if answered[0] is not old or answered[1] is not new:
            answered[:] = old, new, applies(old) or applies(new)
        return bool(answered[2])

    def applies(rule: DeviceTaintRule | None) -> bool:
        return rule is not None and any(
            selects_some(rule.spec.device_selector, spec.driver, spec.pool.name, spec.devices)
            for spec in (published.spec for published in slices.values())
        )

    answered: list[object] = [None, None, False]
    return ClusterEvent(DEVICE_TAINT_RULE, ADD | UPDATE | DELETE, changes_a_slice)


def for_claims_alone(event: ClusterEvent) -> ClusterEvent:
    """Return a registration that has PreEnqueue run for the pods of the claim in question alone.

    Nothing but claims decides there, and the pod itself, which is asked without a registration.
    """
    return event if event.ungated_pods else replace(event, ungated_pods=_ungates_nobody)


def _ungates_nobody(old: object, new: object) -> Collection[str]:
    return ()


def _is_schedulable_after_class_deleted(pod: PodInfo, old: DeviceClass, new: None) -> bool:
    # Another class may provide the resource now.
    return old.spec.extended_resource_name in pod.requests.amounts


def _is_schedulable_after_pod_event(pod: PodInfo, old: Pod, new: Pod | None) -> bool:
    # A pod without a node takes nothing of any.
    return bool((new or old).spec.node_name)
