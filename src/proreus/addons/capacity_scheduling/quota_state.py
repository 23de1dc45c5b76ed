"""ElasticQuotas and the pods of their namespaces as the watch reports them, and claims on them."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.addons.capacity_scheduling.claims import ElasticQuotaClaim
from proreus.addons.capacity_scheduling.oldest_by_name import OldestByName
from proreus.addons.capacity_scheduling.quotas import (
    ELASTIC_QUOTAS,
    Bounds,
    ElasticQuota,
    QuotaAccounts,
)
from proreus.addons.pod_amounts import requests_of
from proreus.framework import ClusterEvent, Handle, PodInfo, QuotaUse, events
from proreus.objects import Pod


class QuotaState:
    """Keeps the guarantees and the use of namespaces."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._quotas: OldestByName[ElasticQuota, Bounds] = OldestByName(
            lambda quota: quota.metadata.namespace,
            Bounds.of,
            "Several quotas are in this namespace, the oldest counts",
        )
        self._bounds = self._quotas.values
        self._accounts = QuotaAccounts()
        handle.on_change(ELASTIC_QUOTAS, self._quota_changed)

    def events(self) -> Iterable[ClusterEvent]:
        """Return the events that change quotas."""
        return (ClusterEvent(ELASTIC_QUOTAS.id, events.ALL),)

    def _quota_changed(self, old: ElasticQuota | None, new: ElasticQuota | None) -> None:
        self._quotas.change(old, new)

    def note(self, pod: Pod, placed: bool) -> None:
        """Count a pod that is placed."""
        if placed:
            self._accounts.put(pod.metadata.uid, pod.metadata.namespace, requests_of(pod))

    def forget(self, pod: Pod) -> None:
        """Do not count a pod any more."""
        self._accounts.remove(pod.metadata.uid)

    unplace = forget

    def reserve(self, pod: PodInfo, node_name: str) -> None:
        """Count a pod that gets a node."""
        self.note(pod.pod, placed=True)

    def unreserve(self, pod: PodInfo) -> None:
        """Do not count a pod that got no node after all."""
        self.forget(pod.pod)

    def may_help(self, pod: PodInfo, old: Pod, new: None) -> bool:
        """Return whether the end of a pod may help another: both are counted by quotas."""
        return pod.namespace in self._bounds and old.metadata.namespace in self._bounds

    def may_reclaim(self, pod: PodInfo, old: None, new: Pod) -> bool:
        """Return whether a pod is within its guarantee, and a new one is counted by a quota too.

        The new one may borrow the guarantee. Or the sum of guarantees is used up with it, and then
        each guarantee counts alone.
        """
        namespace = pod.namespace
        if namespace not in self._bounds or new.metadata.namespace not in self._bounds:
            return False
        bounds, used = self._bounds[namespace].min, self._accounts.used_by(namespace)
        # Called for every waiting pod whenever a pod is bound: most are of namespaces without room,
        # and need not be parsed.
        if any(used.get(name, 0) >= bounds.get(name, 0) for name in pod.requests.amounts):
            return False
        return all(
            used.get(name, 0) + amount <= bounds.get(name, 0)
            for name, amount in requests_of(pod.pod).items()
        )

    def claim(self, *pods: PodInfo) -> ElasticQuotaClaim:
        """Return the claim of a pod, or of the pods of a gang together, as of now."""
        bounds = dict(self._bounds)
        return ElasticQuotaClaim.of(pods, self._accounts, bounds, self._handle.nominator)

    # ---- for people ----------------------------------------------------------------------------

    def uses(self) -> Iterable[QuotaUse]:
        """Yield each namespace's guarantee, maximum and use of each resource."""
        for namespace, bounds in self._bounds.items():
            used = self._accounts.used_by(namespace)
            for resource in sorted({*bounds.min, *bounds.max, *used}):
                yield QuotaUse(
                    quota=namespace,
                    resource=resource,
                    used=used.get(resource, 0),
                    guaranteed=bounds.min.get(resource, 0),
                    limit=bounds.max.get(resource),
                )

    def name_for(self, pod: Pod) -> str:
        """Return the namespace of a pod if it has a quota, else ""."""
        namespace = pod.metadata.namespace
        return namespace if namespace in self._bounds else ""
