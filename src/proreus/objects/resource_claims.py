"""resource.k8s.io/v1 ResourceClaim (KEP-4381 and its extensions)."""

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
"""The maximum number of devices allocated to one claim."""

EXACT_COUNT = "ExactCount"
ALL = "All"


class CapacityRequirements(ApiStruct, frozen=True):
    """Requested amounts of a device that several claims share."""

    requests: dict[str, QuantityText] = {}


class DerivedAttribute(ApiStruct, frozen=True):
    """An attribute that a CEL expression makes of a device's own (KEP-5729)."""

    name: str = ""
    expression: str = ""


class _DeviceAlternative(ApiStruct, frozen=True):
    """The common part of a request and of one of its alternatives."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class ExactDeviceRequest(_DeviceAlternative, frozen=True):
    """A request for a number of devices of one class, or for all of them."""

    admin_access: bool | None = None


class DeviceSubRequest(_DeviceAlternative, frozen=True):
    """An alternative of a request (KEP-4816)."""

    name: str = ""


class DeviceRequest(ApiStruct, frozen=True):
    """A request of a claim: ``exactly``, or the first satisfiable one of ``first_available``."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(ApiStruct, frozen=True):
    """An attribute in which the devices of some requests (by default all) must agree, or differ."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(ApiStruct, frozen=True):
    """Configuration for the devices of some requests (by default all)."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(ApiStruct, frozen=True):
    """The requests, constraints and configuration of a claim."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(ApiStruct, frozen=True):
    """The desired state of a claim."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(ApiStruct, frozen=True):
    """One device allocated to a request (``request`` or ``request/subrequest``)."""

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
    skip_node_operations: tuple[str, ...] = ()


class DeviceAllocationConfiguration(ApiStruct, frozen=True):
    """Configuration of an allocation; ``source``: from the class or from the claim."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiStruct, frozen=True):
    """The allocated devices and their configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(ApiStruct, frozen=True):
    """An allocation, and the nodes that can use it (without a selector all nodes)."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None


class ResourceClaimConsumerReference(ApiStruct, frozen=True):
    """A consumer, normally a pod, that may use the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(ApiStruct, frozen=True):
    """A condition that a driver reports for an allocated device."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True):
    """The state of an allocated device that its driver reports (KEP-4817)."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[DeviceCondition, ...] = ()


class ResourceClaimStatus(ApiStruct, frozen=True):
    """The allocation of a claim, and its consumers."""

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
