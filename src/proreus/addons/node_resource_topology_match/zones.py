"""NodeResourceTopology objects, and the zones, policy and scope that are read from one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from proreus.objects import ApiStruct, ObjectMeta, Resource, parse_amount
from proreus.objects.selectors import parse_count

SINGLE_NUMA_NODE = "single-numa-node"
_POLICIES = ("none", "best-effort", "restricted", SINGLE_NUMA_NODE)
_SCOPES = ("container", "pod")
_DEPRECATED = {
    "SingleNUMANodePodLevel": (SINGLE_NUMA_NODE, "pod"),
    "SingleNUMANodeContainerLevel": (SINGLE_NUMA_NODE, "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
    "BestEffortContainerLevel": ("best-effort", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "RestrictedContainerLevel": ("restricted", "container"),
}
DEFAULT_MAX_NUMA_NODES = 8


class ZoneResource(ApiStruct, frozen=True):
    """A resource of a zone; ``available`` is the rest of it."""

    name: str = ""
    available: str | int | float = 0


class ZoneCost(ApiStruct, frozen=True):
    """The distance to another zone."""

    name: str = ""
    value: int = 0


class TopologyAttribute(ApiStruct, frozen=True):
    """A named value."""

    name: str = ""
    value: str = ""


class TopologyZone(ApiStruct, frozen=True):
    """A zone, which counts if it is of type Node and named ``node-<N>``."""

    name: str = ""
    type: str = ""
    resources: tuple[ZoneResource, ...] = ()
    costs: tuple[ZoneCost, ...] = ()


class NodeResourceTopology(ApiStruct, frozen=True):
    """topology.node.k8s.io NodeResourceTopology, named as its node."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] = ()
    attributes: tuple[TopologyAttribute, ...] = ()
    zones: tuple[TopologyZone, ...] = ()

    def attribute(self, name: str) -> str:
        """Return the last value of an attribute, "" if there is none."""
        return next((one.value for one in reversed(self.attributes) if one.name == name), "")


NODE_RESOURCE_TOPOLOGIES = Resource(
    "topology.node.k8s.io",
    "v1alpha2",
    "noderesourcetopologies",
    "NodeResourceTopology",
    False,
    NodeResourceTopology,
    custom=True,
)


@dataclass(frozen=True)
class Zone:
    """A NUMA zone: ``id``, ``available`` amounts (milli-CPU, bytes, counts), distances by id."""

    id: int
    available: Mapping[str, int]
    costs: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))

    def less(self, amounts: Mapping[str, int]) -> Zone:
        """Return the zone without these amounts, as far as it has them."""
        left = {
            name: max(amount - amounts.get(name, 0), 0) for name, amount in self.available.items()
        }
        return replace(self, available=left)


@dataclass(frozen=True)
class NodeTopology:
    """The topology of a node. ``zones``: by ascending id."""

    zones: tuple[Zone, ...]
    policy: str = "none"
    scope: str = "container"
    max_numa_nodes: int = DEFAULT_MAX_NUMA_NODES

    @property
    def pod_scope(self) -> bool:
        """Whether the kubelet aligns the pod as a whole."""
        return self.scope == "pod"

    def less(self, amounts: Mapping[str, int]) -> NodeTopology:
        """Return the topology with these amounts taken from every zone."""
        return replace(self, zones=tuple(zone.less(amounts) for zone in self.zones))

    @classmethod
    def of(cls, found: NodeResourceTopology) -> NodeTopology:
        """Return the topology of an API object; invalid attributes are ignored."""
        policy, scope, most = "none", "container", DEFAULT_MAX_NUMA_NODES
        if found.topology_policies:
            policy, scope = _DEPRECATED.get(found.topology_policies[0], (policy, scope))
        for one in found.attributes:
            if one.name == "topologyManagerPolicy" and one.value in _POLICIES:
                policy = one.value
            elif one.name == "topologyManagerScope" and one.value in _SCOPES:
                scope = one.value
            elif one.name == "topologyManagerMaxNUMANodes":
                most = _max_numa_nodes(one.value, most)
        zones = [zone for one in found.zones if (zone := _zone(one)) is not None]
        return cls(tuple(sorted(zones, key=lambda zone: zone.id)), policy, scope, most)


def _max_numa_nodes(text: str, default: int) -> int:
    number = parse_count(text) or 0
    return number if 1 < number <= 1024 else default


def _zone(found: TopologyZone) -> Zone | None:
    number = _zone_id(found.name)
    if found.type != "Node" or number is None:
        return None
    available = {one.name: parse_amount(one.name, one.available) for one in found.resources}
    costs = {other: one.value for one in found.costs if (other := _zone_id(one.name)) is not None}
    return Zone(number, available, costs)


def _zone_id(name: str) -> int | None:
    prefix, _, digits = name.partition("-")
    return parse_count(digits) if prefix == "node" else None
