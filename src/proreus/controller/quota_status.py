"""Writes the status of ElasticQuotas: used, assigned and borrowed resources.

``used`` sums running pods, as scheduler-plugins' controller writes it. ``assigned`` sums all pods
that have a node, as the scheduler accounts them; ``borrowed`` is the part of it beyond ``min``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from proreus.addons.capacity_scheduling.queue_objects import ElasticQuotaSource
from proreus.addons.capacity_scheduling.quotas import ELASTIC_QUOTAS, Bounds, ElasticQuota
from proreus.addons.pod_amounts import quantities
from proreus.controller.amounts import is_assigned, requested
from proreus.controller.status_reconciler import StatusReconciler, WithStatus
from proreus.objects import Pod


class ElasticQuotaStatuses(StatusReconciler[ElasticQuota]):
    """A pod counts for the quota that its label names, else for the oldest of its namespace."""

    def __init__(self) -> None:
        super().__init__(ELASTIC_QUOTAS, lambda pod: pod.metadata.namespace)
        self._source = ElasticQuotaSource()
        self._keys: dict[str, set[str]] = {}
        """Keys of quotas, by namespace."""
        self._pods_by_quota: dict[str, dict[str, list[Pod]]] = {}
        """By namespace and name of a quota; of namespaces that have not changed since."""

    def put(self, key: str, obj: WithStatus[ElasticQuota]) -> Collection[str]:
        """Note a quota; where another is its namespace's oldest now, all count other pods."""
        old = self.objects.get(key)
        changed = self._source.note(None if old is None else old.obj, obj.obj)
        self._keys.setdefault(obj.obj.metadata.namespace, set()).add(key)
        return {*super().put(key, obj), *self.keys_that_count(changed)}

    def remove(self, key: str) -> Collection[str]:
        """Note that a quota is gone."""
        old = self.objects.get(key)
        super().remove(key)
        if old is None:
            return ()
        namespace = old.obj.metadata.namespace
        self._keys[namespace].discard(key)
        found = self.keys_that_count(self._source.note(old.obj, None))
        if not self._keys[namespace]:
            del self._keys[namespace]
            self._pods_by_quota.pop(namespace, None)
        return found

    def keys_that_count(self, names: Collection[str]) -> Collection[str]:
        """Return the quotas of these namespaces, in which quotas or pods have changed."""
        for namespace in names:
            self._pods_by_quota.pop(namespace, None)
        return [key for namespace in names for key in self._keys.get(namespace, ())]

    def status(self, key: str, now: float) -> dict[str, Any]:
        """Return the use of the quota's pods."""
        quota = self.objects[key].obj
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
        by_quota = self._pods_by_quota.get(namespace)
        if by_quota is None:
            by_quota = self._pods_by_quota[namespace] = self._grouped(namespace)
        return by_quota.get(quota.metadata.name, [])

    def _grouped(self, namespace: str) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self.pods.of(namespace):
            found.setdefault(self._source.queue_for(pod), []).append(pod)
        return found
