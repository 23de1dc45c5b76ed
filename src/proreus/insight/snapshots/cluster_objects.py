"""The objects of a cluster at one instant, typed, by kind and key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

from proreus.base.kubernetes_version import KubernetesVersion
from proreus.objects.devices import DEVICE_GROUP
from proreus.objects.kinds import BY_KIND
from proreus.objects.meta import ApiStruct, ObjectMeta, Resource, key_of
from proreus.objects.resource_claims import ResourceClaimSpec

T = TypeVar("T")


class ResourceClaimTemplateSpec(ApiStruct, frozen=True):
    """The spec of the claims that are made of a template."""

    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(ApiStruct, frozen=True):
    """resource.k8s.io/v1 ResourceClaimTemplate: a controller makes a claim of it for each pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


RESOURCE_CLAIM_TEMPLATES = Resource(
    DEVICE_GROUP,
    "v1",
    "resourceclaimtemplates",
    "ResourceClaimTemplate",
    True,
    ResourceClaimTemplate,
)

READ_KINDS: dict[str, Resource[Any]] = {
    **BY_KIND,
    RESOURCE_CLAIM_TEMPLATES.kind: RESOURCE_CLAIM_TEMPLATES,
}
"""Every resource that a simulation reads, by its kind: the scheduler's, and templates from which
controllers and admission make pods and claims.
"""


class ClusterObjects:
    """The objects of a cluster. ``version`` is its Kubernetes version, if known.

    ``ignored``: how many objects of each kind were left out, since no scheduler reads them.
    """

    def __init__(self, version: KubernetesVersion | None = None) -> None:
        self.version = version
        self.ignored: Counter[str] = Counter()
        self._by_kind: dict[str, dict[str, Any]] = {}

    def put(self, resource: Resource[T], obj: T) -> None:
        """Add an object, or replace the one with the same key."""
        self._by_kind.setdefault(resource.kind, {})[key_of(obj)] = obj  # type: ignore[arg-type]

    def of(self, resource: Resource[T]) -> dict[str, T]:
        """Return the objects of a resource by key: a view, which a caller may change."""
        return self._by_kind.setdefault(resource.kind, {})

    def __iter__(self) -> Iterator[tuple[Resource[Any], Any]]:
        """Yield each object with its resource: by kind in a fixed order, then as they came."""
        for kind, resource in READ_KINDS.items():
            for obj in self._by_kind.get(kind, {}).values():
                yield resource, obj

    def __len__(self) -> int:
        return sum(map(len, self._by_kind.values()))

    def copy(self) -> ClusterObjects:
        """Return an independent collection of the same (frozen) objects."""
        other = ClusterObjects(self.version)
        other.ignored = self.ignored.copy()
        other._by_kind = {kind: dict(objects) for kind, objects in self._by_kind.items()}
        return other
