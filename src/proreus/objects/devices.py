"""resource.k8s.io/v1: devices and the slices that publish them (KEP-4381 and its extensions).

Opaque configuration of drivers stays JSON text: a scheduler only copies it into allocations.
"""

import msgspec

from proreus.base.kubernetes_version import V1_36
from proreus.objects.meta import ApiStruct, Resource, UnownedObjectMeta
from proreus.objects.selectors import NodeSelector

DEVICE_CLASS_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"

QuantityText = str | int | float


# ---- selectors -------------------------------------------------------------------------------


class CELDeviceSelector(ApiStruct, frozen=True):
    """A CEL expression over ``device``."""

    expression: str = ""


class DeviceSelector(ApiStruct, frozen=True):
    """Selects devices; CEL is the only kind of selector."""

    cel: CELDeviceSelector | None = None


# ---- ResourceSlice -----------------------------------------------------------------------------


class DeviceAttribute(ApiStruct, frozen=True):
    """A value with exactly one of the types set; the plural ones are lists (DRAListTypeAttributes).

    Wire names are the types themselves: ``int``, ``bool``, ``string``, ``version``.
    """

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: tuple[int, ...] | None = msgspec.field(default=None, name="ints")
    bool_values: tuple[bool, ...] | None = msgspec.field(default=None, name="bools")
    string_values: tuple[str, ...] | None = msgspec.field(default=None, name="strings")
    version_values: tuple[str, ...] | None = msgspec.field(default=None, name="versions")


class CapacityRange(ApiStruct, frozen=True):
    """The amounts from ``min`` to ``max`` in steps of ``step``."""

    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityRequestPolicy(ApiStruct, frozen=True):
    """The amounts of a capacity that may be consumed (KEP-5075)."""

    default: QuantityText | None = None
    valid_values: tuple[QuantityText, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(ApiStruct, frozen=True):
    """An amount that a device has, and the policy for consuming parts of it."""

    value: QuantityText = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(ApiStruct, frozen=True):
    """An amount that several devices share."""

    value: QuantityText = "0"


class CounterSet(ApiStruct, frozen=True):
    """Counters that the devices of a pool consume (KEP-4815)."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(ApiStruct, frozen=True):
    """The consumption of a counter set by an allocated device."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(ApiStruct, frozen=True):
    """Keeps claims that do not tolerate it away from a device (KEP-5055)."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeAllocatableResourceMapping(ApiStruct, frozen=True):
    """The amounts that an allocated device adds to a pod's requests (gate
    DRANodeAllocatableResources, 1.36).
    """

    capacity_key: str | None = None
    allocation_multiplier: QuantityText | None = None


class NodeAllocatableMapping(ApiStruct, frozen=True):
    """The amount of a node's resource that an allocated device is, once for each claim."""

    capacity_key: str | None = None
    capacity_multiplier: QuantityText | None = None
    device_multiplier: QuantityText | None = None


class NodeAllocatableOverhead(ApiStruct, frozen=True):
    """The amounts of a node's resource that a device adds for each pod and each container."""

    per_pod: QuantityText | None = None
    per_container: QuantityText | None = None


class NodeAllocatableResource(ApiStruct, frozen=True):
    """The amounts that an allocated device adds to a pod's requests (gate
    DRANodeAllocatableResources, 1.37).
    """

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(ApiStruct, frozen=True):
    """A device of a slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = {}
    node_allocatable_resources: dict[str, NodeAllocatableResource] = {}


class ResourcePool(ApiStruct, frozen=True):
    """The pool of a slice, and its number of slices in this generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(ApiStruct, frozen=True):
    """Devices of one driver and pool, and the nodes that can reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = ()
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(ApiStruct, frozen=True):
    """Devices that a driver publishes."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


# ---- DeviceClass -------------------------------------------------------------------------------


class OpaqueDeviceConfiguration(ApiStruct, frozen=True):
    """Parameters that only the named driver interprets."""

    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class DeviceClassConfiguration(ApiStruct, frozen=True):
    """Configuration for all devices of a class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiStruct, frozen=True):
    """The devices of a class; pods may also request them as ``extended_resource_name``."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(ApiStruct, frozen=True):
    """A class of devices, named by requests of claims."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


# ---- DeviceTaintRule ---------------------------------------------------------------------------


class DeviceTaintSelector(ApiStruct, frozen=True):
    """The devices with this driver, pool and name; None matches any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiStruct, frozen=True):
    """A taint, and the devices that it is on."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(ApiStruct, frozen=True):
    """An administrator's taint on devices (gate DRADeviceTaintRules)."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


DEVICE_GROUP = "resource.k8s.io"
DEVICE_CLASSES = Resource(DEVICE_GROUP, "v1", "deviceclasses", "DeviceClass", False, DeviceClass)
RESOURCE_SLICES = Resource(
    DEVICE_GROUP, "v1", "resourceslices", "ResourceSlice", False, ResourceSlice
)
DEVICE_TAINT_RULES = Resource(
    DEVICE_GROUP,
    "v1",
    "devicetaintrules",
    "DeviceTaintRule",
    False,
    DeviceTaintRule,
    until=(V1_36, "v1beta2"),
)
