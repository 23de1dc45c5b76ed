"""resource.k8s.io/v1: claims to devices, and what they were given (KEP-4381 and its kin)."""

from datetime import datetime

import msgspec

from proreus.objects.devices import (
    DEVICE_GROUP,
    DeviceSelector,
    OpaqueDeviceConfiguration,
    QuantityText,
)
from proreus.objects.meta import ApiStruct, ObjectMeta, Resource
from proreus.objects.selectors import NodeSelector
from proreus.objects.taints import Toleration

EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"
ALLOCATION_RESULTS_MAX_SIZE = 32
"""The most devices that one claim can be given."""

EXACT_COUNT = "ExactCount"
ALL = "All"


class CapacityRequirements(ApiStruct, frozen=True):
    """Amounts asked of a device that several claims share."""

    requests: dict[str, QuantityText] = {}


class ExactDeviceRequest(ApiStruct, frozen=True):
    """Devices of one class: so many, or all."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(ApiStruct, frozen=True):
    """One of several alternatives (KEP-4816)."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(ApiStruct, frozen=True):
    """One of a claim's wishes: exactly this, or the first of these that can be had."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(ApiStruct, frozen=True):
    """What the devices of some requests (none named: of all) must have in common, or must not."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(ApiStruct, frozen=True):
    """Configuration for the devices of some requests (none named: of all)."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(ApiStruct, frozen=True):
    """What is claimed."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(ApiStruct, frozen=True):
    """What is claimed."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(ApiStruct, frozen=True):
    """One device that was given to a request (``request`` or ``request/subrequest``)."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, QuantityText] = {}


class DeviceAllocationConfiguration(ApiStruct, frozen=True):
    """Configuration that goes with an allocation, and whether class or claim brought it."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiStruct, frozen=True):
    """Devices given, and their configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(ApiStruct, frozen=True):
    """What a claim was given, and where that can be used (no selector: everywhere)."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None


class ResourceClaimConsumerReference(ApiStruct, frozen=True):
    """Someone who may use the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(ApiStruct, frozen=True):
    """A condition that a driver reports of an allocated device."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True):
    """What a driver reports of an allocated device (KEP-4817)."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[DeviceCondition, ...] = ()


class ResourceClaimStatus(ApiStruct, frozen=True):
    """What was given, and who may use it."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(ApiStruct, frozen=True):
    """A claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


RESOURCE_CLAIMS = Resource(
    DEVICE_GROUP, "v1", "resourceclaims", "ResourceClaim", True, ResourceClaim
)
