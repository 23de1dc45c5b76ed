"""The status of ElasticQuotas: what is used, assigned, and borrowed.

``used`` is that of running pods, as scheduler-plugins' controller writes it. What the scheduler
accounts is ``assigned``, of all pods that have a node; ``borrowed`` is what of it exceeds ``min``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proreus.addons.capacity_scheduling.queue_objects import ElasticQuotaSource
from proreus.addons.capacity_scheduling.quotas import ELASTIC_QUOTAS, Bounds, ElasticQuota
from proreus.controller.amounts import is_assigned, quantities, requested
from proreus.controller.pod_sets import PodSets
from proreus.controller.status_kind import WithStatus
from proreus.objects import Pod


class ElasticQuotaStatuses:
    """Implements ``StatusKind``. A pod counts for the quota that its label names, else for the
    oldest of its namespace."""

    resource = ELASTIC_QUOTAS

    def __init__(self) -> None:
        self._objects: dict[str, WithStatus[ElasticQuota]] = {}
        self._pods = PodSets(lambda pod: pod.metadata.namespace)

    def put(self, key: str, obj: WithStatus[ElasticQuota]) -> Iterable[str]:
        """Note a quota; the others of its namespace may count other pods now."""
        self._objects[key] = obj
        return self._keys_in([obj.obj.metadata.namespace])

    def remove(self, key: str) -> Iterable[str]:
        """Forget a quota."""
        self._objects.pop(key, None)
        return self._keys_in([key.partition("/")[0]])

    def put_pod(self, pod: Pod) -> Iterable[str]:
        """Note a pod."""
        return self._keys_in(self._pods.put(pod))

    def remove_pod(self, pod: Pod) -> Iterable[str]:
        """Forget a pod."""
        return self._keys_in(self._pods.remove(pod))

    def keys(self) -> Iterable[str]:
        """Return the keys of all quotas."""
        return self._objects

    def get(self, key: str) -> WithStatus[ElasticQuota] | None:
        """Return a quota."""
        return self._objects.get(key)

    def status(self, key: str, now: float) -> dict[str, Any]:
        """Return what the quota's pods use."""
        quota = self._objects[key].obj
        bounds = Bounds.of(quota)
        pods = self._pods_of(quota)
        nothing = dict.fromkeys((*bounds.min, *bounds.max), 0)
        used = requested(pod for pod in pods if pod.status.phase == "Running")
        assigned = requested(pod for pod in pods if is_assigned(pod))
        over = {name: amount - bounds.min.get(name, 0) for name, amount in assigned.items()}
        borrowed = {name: amount for name, amount in over.items() if amount > 0}
        return {
            "used": quantities(nothing | used),
            "assigned": quantities(nothing | assigned),
            "borrowed": quantities(nothing | borrowed),
        }

    def _pods_of(self, quota: ElasticQuota) -> list[Pod]:
        namespace = quota.metadata.namespace
        in_order = sorted(
            (self._objects[key].obj for key in self._keys_in([namespace])), key=_age_and_name
        )
        source = ElasticQuotaSource()
        for one in in_order:
            source.note(None, one)
        name = quota.metadata.name
        return [pod for pod in self._pods.of(namespace) if source.name_for(pod) == name]

    def _keys_in(self, namespaces: Iterable[str]) -> list[str]:
        wanted = set(namespaces)
        return [key for key in self._objects if key.partition("/")[0] in wanted]


def _age_and_name(quota: ElasticQuota) -> tuple[float, str]:
    created = quota.metadata.creation_timestamp
    return (0.0 if created is None else created.timestamp()), quota.metadata.name
