"""ElasticQuotas: the guarantee (``min``), the maximum (``max``) and the use of each namespace.

A resource that ``min`` omits is guaranteed with 0, one that ``max`` omits is not limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from proreus.addons.pod_amounts import Amounts, count
from proreus.objects import ApiStruct, ObjectMeta, Resource
from proreus.objects.quantity import amounts_of


class ElasticQuotaSpec(ApiStruct, frozen=True):
    """Resource lists."""

    min: dict[str, str | int | float] = {}
    max: dict[str, str | int | float] = {}


class ElasticQuota(ApiStruct, frozen=True):
    """scheduling.x-k8s.io ElasticQuota; the oldest of a namespace counts."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


ELASTIC_QUOTAS = Resource(
    "scheduling.x-k8s.io",
    "v1alpha1",
    "elasticquotas",
    "ElasticQuota",
    True,
    ElasticQuota,
    custom=True,
)


@dataclass
class NamespaceUsage:
    """The use by the pods of a namespace; ``pods``: their requests by UID."""

    pods: dict[str, Amounts] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def add(self, uid: str, amounts: Amounts) -> None:
        """Count a pod, in place of its earlier amounts."""
        if self.pods.get(uid) == amounts:
            return
        self.remove(uid)
        self.pods[uid] = amounts
        count(self.used, amounts)

    def remove(self, uid: str) -> None:
        """Do not count a pod any more."""
        count(self.used, self.pods.pop(uid, {}), -1)

    def clone(self) -> NamespaceUsage:
        """Return a copy."""
        return NamespaceUsage(dict(self.pods), dict(self.used))


@dataclass(frozen=True)
class Bounds:
    """``min`` and ``max`` of a quota; a resource that is not in ``max`` is not limited."""

    min: Amounts
    max: Amounts

    @classmethod
    def of(cls, quota: ElasticQuota) -> Bounds:
        """Return the bounds of a quota."""
        return cls(amounts_of(quota.spec.min), amounts_of(quota.spec.max))


class Quotas:
    """A snapshot of all quotas for one cycle; dry runs change it.

    ``bounds`` and ``usage``: by namespace; namespaces without quota are in neither.
    """

    def __init__(self, bounds: Mapping[str, Bounds], usage: Mapping[str, NamespaceUsage]) -> None:
        self._bounds = bounds
        self._usage = {name: usage[name] if name in usage else NamespaceUsage() for name in bounds}
        self._own: set[str] = set()

    def clone(self) -> Quotas:
        """Return a copy; usage is copied once it changes."""
        other = Quotas(self._bounds, self._usage)
        self._own = set()
        return other

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._bounds

    def add(self, namespace: str, uid: str, amounts: Amounts) -> None:
        """Count a pod."""
        if namespace in self._bounds:
            self._changed(namespace).add(uid, amounts)

    def remove(self, namespace: str, uid: str) -> None:
        """Do not count a pod any more."""
        if namespace in self._bounds:
            self._changed(namespace).remove(uid)

    def _changed(self, namespace: str) -> NamespaceUsage:
        if namespace not in self._own:
            self._own.add(namespace)
            self._usage[namespace] = self._usage[namespace].clone()
        return self._usage[namespace]

    # ---- tests ---------------------------------------------------------------------------------

    def over_min(self, namespace: str) -> bool:
        """Return whether a namespace uses more of anything than it is guaranteed."""
        bounds, used = self._bounds[namespace].min, self._usage[namespace].used
        return any(amount > bounds.get(name, 0) for name, amount in used.items())

    def over_min_with(self, namespace: str, more: Amounts, resources: Iterable[str]) -> bool:
        """Return whether a namespace with ``more`` would be over its guarantee of a resource."""
        bounds, used = self._bounds[namespace].min, self._usage[namespace].used
        return any(
            used.get(name, 0) + more.get(name, 0) > bounds.get(name, 0) for name in resources
        )

    def over_max_with(self, namespace: str, more: Amounts, resources: Iterable[str]) -> bool:
        """Return whether a namespace with ``more`` would be over its maximum of a resource."""
        bounds, used = self._bounds[namespace].max, self._usage[namespace].used
        return any(
            name in bounds and used.get(name, 0) + more.get(name, 0) > bounds[name]
            for name in resources
        )

    def sum_over_min_with(self, more: Amounts, resources: Iterable[str]) -> bool:
        """Return whether all namespaces with ``more`` would use more than all guarantees."""
        for name in resources:
            most = sum(bounds.min.get(name, 0) for bounds in self._bounds.values())
            used = sum(usage.used.get(name, 0) for usage in self._usage.values())
            if used + more.get(name, 0) > most:
                return True
        return False
