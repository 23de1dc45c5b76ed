"""The claim of a pod on ElasticQuotas in one cycle, and the pods that may be evicted for it.

``queue_claims.QueueClaim`` has the same methods for a tree of queues. Dry runs change clones of a
claim, by ``add`` and ``remove``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from proreus.addons.capacity_scheduling.quotas import Quotas
from proreus.addons.pod_amounts import Amounts, added, requests_of
from proreus.framework import Nominator, PodInfo, Status
from proreus.plugins.default_preemption import DomainVictim


def most_important_first(units: Iterable[DomainVictim]) -> list[DomainVictim]:
    """Return units, the first to stay first."""
    return sorted(units, key=lambda unit: unit.importance)


@dataclass
class ElasticQuotaClaim:
    """A claim on the ElasticQuota of a namespace. ``quotas``: as they are in this cycle.

    ``pod``: the claimant, or one pod of a gang. ``requests``: of the pod, or of all of its gang.
    ``own`` adds the nominated pods of its namespace, ``total`` those of other namespaces that are
    within their guarantees. ``borrows``: the pod was over the guarantee of its namespace when the
    claim was made; this does not change while victims are removed. ``ignores_sum``: the sum of
    guarantees was used up already, and the pod is within its own. ``last_resort``: evicting pods of
    others on a single node did not reach the guarantee.
    """

    pod: PodInfo
    quotas: Quotas
    requests: Amounts
    own: Amounts
    total: Amounts
    borrows: bool = False
    ignores_sum: bool = False
    last_resort: bool = False

    @classmethod
    def of(cls, pods: Sequence[PodInfo], quotas: Quotas, nominator: Nominator) -> ElasticQuotaClaim:
        """Return the claim of a pod, or of the pods of a gang together."""
        pod, uids = pods[0], {pod.uid for pod in pods}
        requests = added(requests_of(one.pod) for one in pods)
        own, others = [requests], []
        for node_name in nominator.nominated_nodes():
            for other in nominator.nominated_pods(node_name):
                if other.uid in uids or other.namespace not in quotas:
                    continue
                if other.namespace == pod.namespace:
                    if other.priority >= pod.priority:
                        own.append(requests_of(other.pod))
                elif not quotas.over_min(other.namespace):
                    others.append(requests_of(other.pod))
        claim = cls(pod, quotas, requests, added(own), added((*own, *others)))
        if pod.namespace in quotas:
            claim.borrows = quotas.over_min_with(pod.namespace, claim.own, claim.resources)
            # Quotas were lowered, or came after pods: a guarantee counts all the same.
            claim.ignores_sum = not claim.borrows and quotas.sum_over_min_with({}, claim.resources)
        return claim

    def clone(self) -> ElasticQuotaClaim:
        """Return a copy."""
        return replace(self, quotas=self.quotas.clone())

    @property
    def resources(self) -> tuple[str, ...]:
        """The tested resources: all that the pod requests."""
        return tuple(name for name, amount in self.requests.items() if amount)

    @property
    def _has_quota(self) -> bool:
        return self.pod.namespace in self.quotas

    def rejection(self) -> Status | None:
        """Reject a pod that is beyond its maximum, or borrows a guarantee that is not idle."""
        if not self._has_quota:
            return None
        rejected = f"Pod {self.pod.key} is rejected in PreFilter because "
        if self._over_max(self.own):
            text = f"{rejected}ElasticQuota {self.pod.namespace} is more than Max"
            return Status.unschedulable(text)
        if self._over_sum(self.total):
            return Status.unschedulable(f"{rejected}total ElasticQuota used is more than min")
        return None

    def add(self, pod: PodInfo) -> None:
        """Count a pod as placed."""
        self.quotas.add(pod.namespace, pod.uid, requests_of(pod.pod))

    def remove(self, pod: PodInfo) -> None:
        """Do not count a pod as placed any more."""
        self.quotas.remove(pod.namespace, pod.uid)

    def may_evict(self, other: PodInfo) -> bool:
        """Return whether a pod may be evicted.

        Over its own guarantee, a pod preempts less important ones of its namespace; within it, any
        of namespaces that are over theirs. Without quota: less important ones without quota.
        """
        quotas, pod = self.quotas, self.pod
        if not self._has_quota:
            return other.namespace not in quotas and other.priority < pod.priority
        if other.namespace not in quotas:
            return False
        if self.borrows:
            return other.namespace == pod.namespace and other.priority < pod.priority
        return other.namespace != pod.namespace and quotas.over_min(other.namespace)

    def in_order_of_removal(self, units: Iterable[DomainVictim]) -> Iterable[DomainVictim]:
        """Return the units as they are; with ``last_resort``, the least important first."""
        return reversed(most_important_first(units)) if self.last_resort else units

    def protected(self, removed: list[DomainVictim]) -> list[DomainVictim]:
        """Count units of other namespaces again that fit in the guarantees there; return them.

        Removing a larger one after a smaller one may leave room for the smaller one.
        """
        if not self._has_quota or self.borrows:
            return []
        found = []
        for unit in most_important_first(removed):
            amounts = added(requests_of(pod.pod) for pod in unit.pods)
            resources = tuple(name for name, amount in amounts.items() if amount)
            if not self.quotas.over_min_with(unit.pods[0].namespace, amounts, resources):
                for pod in unit.pods:
                    self.add(pod)
                found.append(unit)
        return found

    def exceeds_alone(self) -> bool:
        """Return whether the pod is over the maximum, or the sum of guarantees is exceeded.

        The latter does not count as a last resort, since pods of other nodes will follow.
        """
        if not self._has_quota:
            return False
        over_sum = not self.last_resort and self._over_sum(self.requests)
        return over_sum or self._over_max(self.requests)

    def exceeds(self) -> bool:
        """Return whether the pod with nominated pods is over the maximum or the sum."""
        return self._has_quota and (self._over_max(self.own) or self._over_sum(self.total))

    def reaches_its_guarantee(self) -> bool:
        """Return whether the pod has a quota, and is within its minimum and maximum."""
        return self._has_quota and not self.borrows and not self._over_max(self.own)

    def _over_max(self, claimed: Amounts) -> bool:
        return self.quotas.over_max_with(self.pod.namespace, claimed, self.resources)

    def _over_sum(self, claimed: Amounts) -> bool:
        return not self.ignores_sum and self.quotas.sum_over_min_with(claimed, self.resources)
