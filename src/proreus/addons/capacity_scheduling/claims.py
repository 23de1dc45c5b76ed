"""Claims of pods on what their namespace or queue may have, in one cycle.

``ElasticQuotaClaim`` is by namespace, ``queue_claims.QueueClaim`` by a tree of queues.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from proreus.addons.capacity_scheduling.queue_accounts import QueueAccounts
from proreus.addons.capacity_scheduling.quotas import Bounds, QuotaAccounts
from proreus.addons.pod_amounts import Amounts, added, count, requests_of
from proreus.framework import Nominator, PodInfo, Status
from proreus.plugins.default_preemption import DomainVictim


def most_important_first(units: Iterable[DomainVictim]) -> list[DomainVictim]:
    """Return units, the first to stay first."""
    return sorted(units, key=lambda unit: unit.importance)


def nominated_besides(pods: Iterable[PodInfo], nominator: Nominator) -> Iterator[PodInfo]:
    """Yield the nominated pods without some pods."""
    uids = {pod.uid for pod in pods}
    for node_name in nominator.nominated_nodes():
        for other in nominator.nominated_pods(node_name):
            if other.uid not in uids:
                yield other


@dataclass(kw_only=True)
class PodClaim(ABC):
    """A claim, and the changes that a dry run makes to the accounts, in a clone of it.

    ``pod``: the claimant, or one pod of a gang. ``requests``: of the pod, or of all of its gang.
    ``own`` adds the nominated pods of its namespace or queue that are as important.
    ``last_resort``: evicting pods of others on a single node did not reach the guarantee.
    """

    pod: PodInfo
    accounts: QuotaAccounts | QueueAccounts
    requests: Amounts
    own: Amounts
    last_resort: bool = False
    _changed: dict[str, dict[str, int]] = field(default_factory=dict)
    """The change by this dry run, by namespace or queue and by resource."""
    _moved: set[str] = field(default_factory=set)
    """UIDs of pods that are placed here and not in the accounts, or the other way round."""

    def clone(self) -> Self:
        """Return a copy."""
        changed = {name: dict(one) for name, one in self._changed.items()}
        return replace(self, _changed=changed, _moved=set(self._moved))

    def add(self, pod: PodInfo) -> None:
        """Count a pod as placed."""
        if not self._is_placed(pod.uid):
            self._move(pod, 1)

    def remove(self, pod: PodInfo) -> None:
        """Do not count a pod as placed any more."""
        if self._is_placed(pod.uid):
            self._move(pod, -1)

    def _is_placed(self, uid: str) -> bool:
        return self.accounts.is_placed(uid) != (uid in self._moved)

    def _move(self, pod: PodInfo, sign: int) -> None:
        self._moved ^= {pod.uid}
        amounts = requests_of(pod.pod)
        for name in self._counted_in(pod):
            count(self._changed.setdefault(name, {}), amounts, sign)

    @abstractmethod
    def _counted_in(self, pod: PodInfo) -> Iterable[str]:
        """Return the namespace of a pod, or its queue and the ones above it."""

    def _used(self, name: str, resource: str) -> int:
        changed = self._changed.get(name)
        more = changed.get(resource, 0) if changed else 0
        return self.accounts.used(name, resource) + more


@dataclass(kw_only=True)
class ElasticQuotaClaim(PodClaim):
    """A claim on the ElasticQuota of a namespace. ``bounds``: by namespace, as of this cycle.

    ``total`` adds to ``own`` the nominated pods of other namespaces that are within their
    guarantees. ``borrows``: the pod was over the guarantee of its namespace when the claim was
    made; this does not change while victims are removed. ``ignores_sum``: the sum of guarantees was
    used up already, and the pod is within its own.
    """

    accounts: QuotaAccounts
    bounds: Mapping[str, Bounds]
    total: Amounts
    borrows: bool = False
    ignores_sum: bool = False

    @classmethod
    def of(
        cls,
        pods: Sequence[PodInfo],
        accounts: QuotaAccounts,
        bounds: Mapping[str, Bounds],
        nominator: Nominator,
    ) -> ElasticQuotaClaim:
        """Return the claim of a pod, or of the pods of a gang together."""
        pod, requests = pods[0], added(requests_of(one.pod) for one in pods)
        claim = cls(pod=pod, accounts=accounts, bounds=bounds, requests=requests, own={}, total={})
        own, others = [requests], []
        for other in nominated_besides(pods, nominator):
            if other.namespace not in bounds:
                continue
            if other.namespace == pod.namespace:
                if other.priority >= pod.priority:
                    own.append(requests_of(other.pod))
            elif not claim._over_min(other.namespace):
                others.append(requests_of(other.pod))
        claim.own, claim.total = added(own), added((*own, *others))
        if pod.namespace in bounds:
            claim.borrows = claim._over_min_with(pod.namespace, claim.own, claim.resources)
            # Quotas were lowered, or came after pods: a guarantee counts all the same.
            claim.ignores_sum = not claim.borrows and claim._over_sum({})
        return claim

    def _counted_in(self, pod: PodInfo) -> Iterable[str]:
        return (pod.namespace,)

    @property
    def resources(self) -> tuple[str, ...]:
        """The tested resources: all that the pod requests."""
        return tuple(name for name, amount in self.requests.items() if amount)

    @property
    def _has_quota(self) -> bool:
        return self.pod.namespace in self.bounds

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

    def may_evict(self, other: PodInfo) -> bool:
        """Return whether a pod may be evicted.

        Over its own guarantee, a pod preempts less important ones of its namespace; within it, any
        of namespaces that are over theirs. Without quota: less important ones without quota.
        """
        pod, has_quota = self.pod, other.namespace in self.bounds
        if not self._has_quota:
            return not has_quota and other.priority < pod.priority
        if not has_quota:
            return False
        if self.borrows:
            return other.namespace == pod.namespace and other.priority < pod.priority
        return other.namespace != pod.namespace and self._over_min(other.namespace)

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
            if not self._over_min_with(unit.pods[0].namespace, amounts, resources):
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

    def _over_min(self, namespace: str) -> bool:
        """Return whether a namespace uses more of anything than it is guaranteed."""
        used = self.accounts.used_by(namespace).keys() | self._changed.get(namespace, {}).keys()
        return self._over_min_with(namespace, {}, used)

    def _over_min_with(self, namespace: str, more: Amounts, resources: Iterable[str]) -> bool:
        """Return whether a namespace with ``more`` would be over its guarantee of a resource."""
        least = self.bounds[namespace].min
        return any(
            self._used(namespace, name) + more.get(name, 0) > least.get(name, 0)
            for name in resources
        )

    def _over_max(self, claimed: Amounts) -> bool:
        namespace = self.pod.namespace
        most = self.bounds[namespace].max
        return any(
            name in most and self._used(namespace, name) + claimed.get(name, 0) > most[name]
            for name in self.resources
        )

    def _over_sum(self, claimed: Amounts) -> bool:
        """Return whether all namespaces with the claim would use more than all guarantees."""
        if self.ignores_sum:
            return False
        for name in self.resources:
            most = sum(bounds.min.get(name, 0) for bounds in self.bounds.values())
            used = sum(self._used(namespace, name) for namespace in self.bounds)
            if used + claimed.get(name, 0) > most:
                return True
        return False
