"""The requests that a device's ``nodeAllocatableResources`` add to those of a pod.

A device that *is* a part of its node, as that of a driver for cpus, has a mapping: it counts once
for each claim, which pods cannot share. One that takes some of the node while it is used has an
overhead, for each pod and for each container that refers to the claim.

Example: two devices with ``cpu: {mapping: {deviceMultiplier: 8}}`` are 16 cpus; a device with
``memory: {overhead: {perPod: 1Gi, perContainer: 1Gi}}`` takes 3Gi of a pod that uses it in two
containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.objects.devices import (
    Device,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    QuantityText,
)
from proreus.objects.meta import key_of
from proreus.objects.pod import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
    Pod,
    ResourceList,
)
from proreus.objects.quantity import NANO, parse_quantity
from proreus.objects.requests import (
    DeviceResources,
    PodResourcesOptions,
    limits_of_containers,
    pod_requests,
    requests_of_containers,
    resources_of_devices,
    resources_of_devices_in,
)
from proreus.objects.resource_claims import ResourceClaim
from proreus.objects.resource_names import is_pod_level_resource
from proreus.plugins.dynamic_resources.devices.capacity import Amount, quantity_text
from proreus.plugins.dynamic_resources.devices.kinds import capacity_name
from proreus.plugins.dynamic_resources.devices.node_allocatable import (
    ClaimDevice,
    ClaimDevices,
    EffectiveRequest,
    MappingError,
    Sums,
    containers_of,
    with_statuses,
)

_HUGE_PAGES = "hugepages-"


def is_mapped(device: Device) -> bool:
    """Return whether a device is a part of its node, so that pods cannot share it."""
    return any(one.mapping is not None for one in device.node_allocatable_resources.values())


class NodeAllocatableResources:
    """``nodeAllocatableResources`` of devices: ``mapping`` and ``overhead`` of a pod's status."""

    def effective_request_of(
        self, pod: PodInfo, allocated_devices: Iterable[ClaimDevices]
    ) -> EffectiveRequest | Status | None:
        """Return a pod's request with its devices; None if none of them consumes of the node.

        A status says why the pod cannot have the devices. Raises ``MappingError``.
        """
        # Most devices consume nothing, and the pod's requests need not be added up again.
        consuming = [
            (claim, devices)
            for claim, devices in allocated_devices
            if any(self.consumes(one.kind.device) for one in devices)
        ]
        if not consuming:
            return None
        statuses = tuple(
            status
            for claim, devices in sorted(consuming, key=lambda one: one[0].metadata.name)
            if (status := self.status_of(claim, devices, containers_of(pod.pod, claim))) is not None
        )
        options = PodResourcesOptions(
            pod.resources_options.pod_level,
            devices=True,
            overhead_by_container=pod.resources_options.overhead_by_container,
        )
        with_devices = with_statuses(pod.pod, statuses)
        amounts = pod_requests(with_devices, options)
        refusal = self.refusal(pod, with_devices, amounts)
        return refusal or EffectiveRequest(amounts, statuses)

    def consumes(self, device: Device) -> bool:
        """Return whether a device consumes of its node."""
        return bool(device.node_allocatable_resources)

    def status_of(
        self, claim: ResourceClaim, devices: Sequence[ClaimDevice], containers: tuple[str, ...]
    ) -> NodeAllocatableResourceClaimStatus | None:
        """Return the consumption of a claim's devices, None if none; raises ``MappingError``."""
        mapped, per_pod, per_container = Sums(), Sums(), Sums()
        for device in devices:
            for resource, one in sorted(device.kind.device.node_allocatable_resources.items()):
                if one.mapping is not None:
                    amount = _mapped(claim, device, resource, one.mapping)
                    if amount is not None:
                        mapped.add(resource, amount)
                overhead = one.overhead or NodeAllocatableOverhead()
                for sums, text in (
                    (per_pod, overhead.per_pod),
                    (per_container, overhead.per_container),
                ):
                    if text is not None:
                        sums.add(resource, (parse_quantity(text), text))
        mappings, for_pod, for_container = mapped.texts(), per_pod.texts(), per_container.texts()
        overheads = sorted(for_pod.keys() | for_container.keys())
        if not mappings and not overheads:
            return None
        return NodeAllocatableResourceClaimStatus(
            resource_claim_name=claim.metadata.name,
            containers=containers,
            mapping=tuple(
                NodeAllocatableMappedResources(name=name, quantity=text)
                for name, text in mappings.items()
            ),
            overhead=tuple(
                NodeAllocatableOverheadResources(
                    name=name, per_pod=for_pod.get(name), per_container=for_container.get(name)
                )
                for name in overheads
            ),
        )

    def refusal(self, pod: PodInfo, with_devices: Pod, amounts: Mapping[str, int]) -> Status | None:
        """Return the rejection of a pod whose pod-level resources do not cover its devices."""
        # Pod-level requests replace the sum of the parts (KEP-2837), so devices would go uncounted,
        # and the apiserver, which compares the rest, does not know them
        # (validatePodLevelResourcesCoverDRA).
        resources = pod.pod.spec.resources
        if (
            not pod.resources_options.pod_level
            or resources is None
            or not with_devices.status.node_allocatable_resource_claim_statuses
        ):
            return None
        by_container = pod.resources_options.overhead_by_container
        devices = resources_of_devices(with_devices, by_container=by_container)
        text = _uncovered_request(with_devices, resources.requests, devices) or _uncovered_limit(
            with_devices, resources.limits, devices
        )
        return Status.unresolvable(text) if text else None


def _mapped(
    claim: ResourceClaim, device: ClaimDevice, resource: str, mapping: NodeAllocatableMapping
) -> Amount | None:
    """Return the amount of a resource that one device is; None if it is none for this claim."""
    if mapping.capacity_key:
        where = f"NodeAllocatableResources for resource {resource}"
        amount = part_of_capacity(
            claim, device, mapping.capacity_key, mapping.capacity_multiplier, where
        )
        if amount is not None and device.kind.features.allocator_of_1_38:
            _check_sign(claim, device, mapping.capacity_key, resource, amount)
        return amount
    text = mapping.device_multiplier
    return None if text is None else (parse_quantity(text), text)


def _check_sign(
    claim: ResourceClaim, device: ClaimDevice, key: str, resource: str, amount: Amount
) -> None:
    """Raise ``MappingError`` for an amount below zero."""
    consumed = (device.consumed or {})[_name_of(key, device)]
    what = ""
    if consumed[0] < 0:
        what, amount = f"ConsumedCapacity for capacity key '{key}'", consumed
    elif amount[0] < 0:
        what = f"computed node-allocatable footprint for resource {resource}"
    if what:
        raise MappingError(
            f"claim {key_of(claim)}, device {device.name}: {what} must not be negative, got "
            f"{quantity_text(*amount)}"
        )


def _name_of(key: str, device: ClaimDevice) -> str:
    return capacity_name(key, device.kind.driver, device.kind.features)


def part_of_capacity(
    claim: ResourceClaim, device: ClaimDevice, key: str, multiplier: QuantityText | None, where: str
) -> Amount | None:
    """Return the amount for the consumed part of a capacity; None if nothing of it is consumed.

    ``where``: the field that names the capacity. Raises ``MappingError``.
    """
    # Only a device that allows multiple allocations has consumed capacity.
    if device.consumed is None:
        raise MappingError(
            f"claim {key_of(claim)}, device {device.name}: ConsumedCapacity is nil, but Capacity "
            f"key '{key}' is set in {where}"
        )
    name = _name_of(key, device)
    if name not in device.consumed:
        return None
    nano, like = device.consumed[name]
    # Rounded up to a nano-unit, so that the node is never short of what devices use.
    if multiplier is not None:
        nano = -(-nano * parse_quantity(multiplier) // NANO)
    return nano, like


def _uncovered_request(pod: Pod, requests: ResourceList, devices: DeviceResources) -> str:
    parts = requests_of_containers(pod, devices)
    for resource in sorted(filter(is_pod_level_resource, requests)):
        if parts.get(resource, 0) > parse_quantity(requests[resource]):
            return (
                f"pod level request for {resource} is insufficient to cover the aggregated "
                "container and node-allocatable DRA requests"
            )
    return ""


def _uncovered_limit(pod: Pod, limits: ResourceList, devices: DeviceResources) -> str:
    parts = limits_of_containers(pod, devices)
    # Huge pages cannot be over-committed, so their limits add up; those of other resources hold
    # for each container.
    for resource in sorted(limits):
        nano = parts.get(resource, 0)
        if resource.startswith(_HUGE_PAGES) and nano > parse_quantity(limits[resource]):
            return (
                f"pod level limit for {resource} is insufficient to cover the aggregated container "
                "and node-allocatable DRA limits"
            )
    for container in pod.spec.containers:
        own = resources_of_devices_in(pod, container.name)
        for resource, limit in sorted(container.resources.limits.items()):
            if resource.startswith(_HUGE_PAGES) or resource not in limits:
                continue
            if parse_quantity(limit) + own.get(resource, 0) > parse_quantity(limits[resource]):
                return (
                    f"pod level limit for {resource} is insufficient to cover the limit and DRA "
                    f"overhead for container {container.name}"
                )
    return ""
