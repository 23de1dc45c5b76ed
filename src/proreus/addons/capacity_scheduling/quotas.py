"""ElasticQuotas: the guarantee (``min``), the maximum (``max``) and the use of each namespace.

A resource that ``min`` omits is guaranteed with 0, one that ``max`` omits is not limited.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Bounds:
    """``min`` and ``max`` of a quota; a resource that is not in ``max`` is not limited."""

    min: Amounts
    max: Amounts

    @classmethod
    def of(cls, quota: ElasticQuota) -> Bounds:
        """Return the bounds of a quota."""
        return cls(amounts_of(quota.spec.min), amounts_of(quota.spec.max))


class QuotaAccounts:
    """Counts the pods of each namespace, each once.

    All namespaces are counted: a quota may come after the pods that it counts.
    """

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Amounts]] = {}
        """The namespace and the requests of each pod, by UID."""
        self._used: dict[str, dict[str, int]] = {}

    def put(self, uid: str, namespace: str, amounts: Amounts) -> None:
        """Count a pod, in place of its earlier amounts."""
        if self._pods.get(uid) != (namespace, amounts):
            self.remove(uid)
            self._pods[uid] = namespace, amounts
            count(self._used.setdefault(namespace, {}), amounts)

    def remove(self, uid: str) -> None:
        """Do not count a pod any more."""
        namespace, amounts = self._pods.pop(uid, ("", {}))
        count(self._used.get(namespace, {}), amounts, -1)
        if not self._used.get(namespace, True):
            del self._used[namespace]

    def is_placed(self, uid: str) -> bool:
        """Return whether a pod is counted."""
        return uid in self._pods

    def used_by(self, namespace: str) -> Amounts:
        """Return the amounts that the pods of a namespace use."""
        return self._used.get(namespace, {})

    def used(self, namespace: str, resource: str) -> int:
        """Return the use of a resource by the pods of a namespace."""
        return self.used_by(namespace).get(resource, 0)
