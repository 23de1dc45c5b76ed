"""Services and controllers, as far as default spreading reads their selectors.

A Service without a selector selects nothing; callers interpret the absent selectors of others.
"""

from __future__ import annotations

from proreus.objects.meta import ApiStruct, ObjectMeta, Resource, UnownedObjectMeta
from proreus.objects.selectors import LabelSelector


class ServiceSpec(ApiStruct, frozen=True):
    """A plain map as selector; None means that Kubernetes does not manage the endpoints."""

    selector: dict[str, str] | None = None


class Service(ApiStruct, frozen=True):
    """core/v1 Service."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(ApiStruct, frozen=True):
    """A plain map as selector."""

    selector: dict[str, str] | None = None


class ReplicationController(ApiStruct, frozen=True):
    """core/v1 ReplicationController."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class ControllerSpec(ApiStruct, frozen=True):
    """The selector of an apps/v1 controller."""

    selector: LabelSelector | None = None


class ReplicaSet(ApiStruct, frozen=True):
    """apps/v1 ReplicaSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerSpec = ControllerSpec()


class StatefulSet(ApiStruct, frozen=True):
    """apps/v1 StatefulSet."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()
    spec: ControllerSpec = ControllerSpec()


SERVICES = Resource("", "v1", "services", "Service", True, Service)
REPLICATION_CONTROLLERS = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", True, ReplicationController
)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, ReplicaSet)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", True, StatefulSet)

WORKLOAD_KINDS = (SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
