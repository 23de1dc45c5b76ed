"""AppGroup and NetworkTopology (diktyo.x-k8s.io), as far as the plugins read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from proreus.objects import ApiObject, ApiStruct, ObjectMeta, Resource

APP_GROUP_LABEL = "appgroup.diktyo.x-k8s.io"
WORKLOAD_LABEL = "appgroup.diktyo.x-k8s.io.workload"


class AppGroupWorkload(ApiStruct, frozen=True):
    """A workload; pods name it by ``selector`` in their label."""

    name: str = ""
    selector: str = ""


class WorkloadDependency(ApiStruct, frozen=True):
    """Another workload that must not be further away than ``max_network_cost``."""

    workload: AppGroupWorkload = AppGroupWorkload()
    max_network_cost: int = 0


class DependentWorkload(ApiStruct, frozen=True):
    """A workload and its dependencies."""

    workload: AppGroupWorkload = AppGroupWorkload()
    dependencies: tuple[WorkloadDependency, ...] = ()


class AppGroupSpec(ApiStruct, frozen=True):
    """The workloads of an application."""

    workloads: tuple[DependentWorkload, ...] = ()


class OrderedWorkload(ApiStruct, frozen=True):
    """The place of a workload in the start order."""

    workload: AppGroupWorkload = AppGroupWorkload()
    index: int = 0


class AppGroupStatus(ApiStruct, frozen=True):
    """The topological order, computed by a controller."""

    topology_order: tuple[OrderedWorkload, ...] = ()


class AppGroup(ApiStruct, frozen=True):
    """An application of several workloads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: AppGroupSpec = AppGroupSpec()
    status: AppGroupStatus = AppGroupStatus()

    def dependencies(self, selector: str) -> tuple[WorkloadDependency, ...]:
        """Return the dependencies of a workload's pods."""
        return next(
            (one.dependencies for one in self.spec.workloads if one.workload.selector == selector),
            (),
        )

    def index(self, selector: str) -> int | None:
        """Return the place of a workload in the order; None if it has none."""
        order = self.status.topology_order
        return next((one.index for one in order if one.workload.selector == selector), None)


class DestinationCost(ApiStruct, frozen=True):
    """The cost to a destination."""

    destination: str = ""
    network_cost: int = 0


class OriginCosts(ApiStruct, frozen=True):
    """The costs from an origin."""

    origin: str = ""
    cost_list: tuple[DestinationCost, ...] = ()


class TopologyCosts(ApiStruct, frozen=True):
    """Costs between the values of a node label."""

    topology_key: str = ""
    origin_list: tuple[OriginCosts, ...] = ()


class NetworkWeights(ApiStruct, frozen=True):
    """Costs under a name: UserDefined, NetperfCosts …"""

    name: str = ""
    topology_list: tuple[TopologyCosts, ...] = ()


class NetworkTopologySpec(ApiStruct, frozen=True):
    """All costs."""

    weights: tuple[NetworkWeights, ...] = ()


class NetworkTopology(ApiStruct, frozen=True):
    """The costs of sending data between regions and zones."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkTopologySpec = NetworkTopologySpec()


APP_GROUPS = Resource(
    "appgroup.diktyo.x-k8s.io", "v1alpha1", "appgroups", "AppGroup", True, AppGroup, custom=True
)
NETWORK_TOPOLOGIES = Resource(
    "networktopology.diktyo.x-k8s.io",
    "v1alpha1",
    "networktopologies",
    "NetworkTopology",
    True,
    NetworkTopology,
    custom=True,
)

T = TypeVar("T", bound=ApiObject)


def first_named(store: Mapping[str, T], namespaces: Iterable[str], name: str) -> T | None:
    """Return the object of this name in the first of some namespaces that has one."""
    keys = (f"{namespace}/{name}" for namespace in namespaces)
    return next((store[key] for key in keys if key in store), None)
