"""The API resources that proreus uses, each with the Struct of its objects.

``Untyped`` are kinds of which only the fact of a change matters.
"""

from typing import Any

from proreus.objects.devices import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_SLICES
from proreus.objects.meta import ApiStruct, Resource, UnownedObjectMeta, Untyped
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.objects.priority_class import PRIORITY_CLASSES
from proreus.objects.resource_claims import RESOURCE_CLAIMS
from proreus.objects.scheduling import COMPOSITE_POD_GROUPS, POD_GROUPS
from proreus.objects.storage import STORAGE_KINDS
from proreus.objects.workloads import WORKLOAD_KINDS


class Namespace(ApiStruct, frozen=True):
    """A namespace; its labels are matched by namespace selectors."""

    metadata: UnownedObjectMeta = UnownedObjectMeta()


PODS = Resource("", "v1", "pods", "Pod", True, Pod)
NODES = Resource("", "v1", "nodes", "Node", False, Node)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, Namespace)

SCHEDULED_KINDS: tuple[Resource[Any], ...] = (PODS, NODES, NAMESPACES)
"""The resources that every scheduler watches for any set of plugins."""

BY_KIND: dict[str, Resource[Any]] = {
    resource.kind: resource
    for resource in (
        *SCHEDULED_KINDS,
        POD_DISRUPTION_BUDGETS,
        PRIORITY_CLASSES,
        POD_GROUPS,
        COMPOSITE_POD_GROUPS,
        *WORKLOAD_KINDS,
        RESOURCE_CLAIMS,
        DEVICE_CLASSES,
        RESOURCE_SLICES,
        DEVICE_TAINT_RULES,
        *STORAGE_KINDS,
    )
}
"""Every resource that proreus uses, by its kind."""

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, Untyped)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True, Untyped)
EVENTS_V1 = Resource("", "v1", "events", "Event", True, Untyped)


def require_resource(resource: object) -> None:
    """Raise ``TypeError`` for what is no ``Resource``, such as the name of a kind."""
    if not isinstance(resource, Resource):
        raise TypeError(f"a resource is an object such as proreus.objects.PODS, not {resource!r}")
