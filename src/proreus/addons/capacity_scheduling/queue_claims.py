"""The claim of a pod on its queue: what the queue deserves, its fair share, and reclaim.

Worked example: two queues deserve 4 CPUs each, of 12; both ask for more, with equal weights, so
that the fair share of each is 6. The first has 8. A pod of the second that asks for 1 gets it back
from the first as long as the second has less than 4 (it is deserved), whatever the priorities; from
4 to 6 only if the first stays the more saturated of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from proreus.addons.capacity_scheduling.claims import (
    ElasticQuotaClaim,
    PodClaim,
    most_important_first,
)
from proreus.addons.capacity_scheduling.queue_accounts import QueueAccounts
from proreus.addons.capacity_scheduling.queue_objects import PodQueues
from proreus.addons.capacity_scheduling.queue_tree import QueueShares
from proreus.addons.pod_amounts import Amounts, added, requests_of
from proreus.framework import PodInfo, Status
from proreus.plugins.default_preemption import DomainVictim

Bounds = Mapping[str, Mapping[str, int]]
"""Amounts by queue and resource."""


@dataclass(kw_only=True)
class QueueClaim(PodClaim):
    """A pod's claim on its queue, "" for a pod of none.

    ``saturation_multiplier``: a queue gives up its surplus only to one that is less saturated by
    this factor. ``now``: seconds since the epoch.
    """

    accounts: QueueAccounts
    queues: PodQueues
    shares: QueueShares
    saturation_multiplier: float
    now: float
    queue: str

    def _counted_in(self, pod: PodInfo) -> Iterable[str]:
        return self.accounts.tree.path(self.queues.name_for(pod.pod))

    # ---- may it start? -------------------------------------------------------------------------

    def rejection(self) -> Status | None:
        """Reject a pod without such a queue, or beyond its limit or fair share."""
        tree, queue = self.accounts.tree, self.queue
        if not queue:
            return None
        if queue not in tree:
            return Status.unresolvable(f'queue "{queue}" does not exist')
        if not tree.is_leaf(queue):
            return Status.unresolvable(f'queue "{queue}" has queues below it, and takes no pods')
        for name in tree.path(queue):
            if resource := self._over_limit(name, self.own):
                return Status.unschedulable(f'queue "{name}" is at its limit of {resource}')
        preemptible = self.queues.is_preemptible(self.pod.pod)
        for name in tree.path(queue):
            if self._within(name, self.own, self.shares.deserved):
                continue
            # A pod that cannot be evicted must not borrow.
            if not preemptible:
                text = (
                    f'queue "{name}" deserves less than this pod, which is not preemptible, needs'
                )
                return Status.unschedulable(text)
            if resource := self._beyond_share(name, self.own):
                return Status.unschedulable(f'queue "{name}" has its fair share of {resource}')
        return None

    def exceeds_alone(self) -> bool:
        """Return whether the pod may not start, without nominated pods."""
        return replace(self, own=self.requests).exceeds()

    def exceeds(self) -> bool:
        """Return whether the pod may not start."""
        return self.rejection() is not None

    def reaches_its_guarantee(self) -> bool:
        """Return whether the pod is within the deserved amounts of its queue and all above it."""
        path = self.accounts.tree.path(self.queue)
        deserved = self.shares.deserved
        return bool(path) and all(self._within(name, self.own, deserved) for name in path)

    def _over_limit(self, queue: str, claimed: Amounts) -> str:
        limit = self.accounts.tree[queue].limit
        return next(
            (
                name
                for name, amount in claimed.items()
                if name in limit and amount and self._used(queue, name) + amount > limit[name]
            ),
            "",
        )

    def _within(self, queue: str, claimed: Amounts, bounds: Bounds) -> bool:
        bound = bounds.get(queue, {})
        return all(
            self._used(queue, name) + amount <= bound.get(name, 0)
            for name, amount in claimed.items()
            if amount
        )

    def _beyond_share(self, queue: str, claimed: Amounts) -> str:
        """Return a resource of which a queue has its share already, "" for none.

        The last pod may go beyond it: shares are no multiples of requests, and the rest would be
        idle. But it must leave what the queue's siblings deserve and ask for: they would take it
        back at once.
        """
        share = self.shares.fair.get(queue, {})
        capacity = self.shares.capacity
        for name, amount in claimed.items():
            # Nothing to divide if no node has the resource; NodeResourcesFit says so.
            if not amount or not capacity.get(name, 0):
                continue
            after, most = self._used(queue, name) + amount, share.get(name, 0)
            if after > most and (
                after - self.requests.get(name, 0) >= most
                or after > self._left_by_siblings(queue, name)
            ):
                return name
        return ""

    def _left_by_siblings(self, queue: str, resource: str) -> int:
        """Return the most that a queue can have if its siblings get what they deserve."""
        tree, shares = self.accounts.tree, self.shares
        path = tree.path(queue)
        parent = path[1] if len(path) > 1 else ""
        total = shares.fair[parent][resource] if parent else shares.capacity[resource]
        for name in tree.children(parent):
            if name != queue:
                claimed = min(shares.deserved[name][resource], shares.fair[name][resource])
                total -= max(self._used(name, resource), claimed)
        return total

    # ---- victims -------------------------------------------------------------------------------

    def may_evict(self, other: PodInfo) -> bool:
        """Return whether a pod may be evicted.

        In its own queue a pod evicts less important ones, unless it can reclaim what others
        borrowed. It evicts a pod of another queue if it is within what its own queue deserves, and
        that queue has more than it deserves; or if it is within the fair share of its queue, and
        that queue is more saturated, and stays so. Pods of no queue and pods of queues leave each
        other alone.
        """
        queues = self.queues
        queue = queues.name_for(other.pod)
        if queue == self.queue:
            if queue and not self.last_resort and self.reaches_its_guarantee():
                return False
            return other.priority < self.pod.priority and queues.is_preemptible(other.pod)
        if not queue or not self.queue:
            return False
        return queues.is_preemptible(other.pod) and self._may_reclaim(queue, other)

    def _may_reclaim(self, queue: str, other: PodInfo) -> bool:
        tree = self.accounts.tree
        path, others = tree.diverging(self.queue, queue)
        if not path or not others:
            return False
        for name in tree.path(queue):
            found = tree[name]
            if not found.reclaimable:
                return False
            start = other.pod.status.start_time
            ran = 0.0 if start is None else self.now - start.timestamp()
            if ran < found.reclaim_min_runtime_seconds:
                return False
        amounts, shares = requests_of(other.pod), self.shares
        wanted = [name for name, amount in self.requests.items() if amount and amounts.get(name)]
        if all(self._within(name, self.own, shares.deserved) for name in path):
            return all(self._over(name, wanted, shares.deserved) for name in others)
        if not all(self._within(name, self.own, shares.fair) for name in path):
            return False
        return all(self._over(name, wanted, shares.fair) for name in others) and (
            self._stays_more_saturated(path[-1], others[-1], wanted, amounts)
        )

    def _over(self, queue: str, resources: Iterable[str], bounds: Bounds) -> bool:
        bound = bounds.get(queue, {})
        return any(self._used(queue, name) > bound.get(name, 0) for name in resources)

    def _stays_more_saturated(
        self, mine: str, other: str, resources: Iterable[str], amounts: Amounts
    ) -> bool:
        """Return whether the other queue is at least as saturated after the move, by the factor.

        Otherwise the two would evict each other's pods in turn.
        """
        fair, factor = self.shares.fair, self.saturation_multiplier
        for name in resources:
            share, others = fair[mine].get(name, 0), fair[other].get(name, 0)
            after = self._used(mine, name) + self.own.get(name, 0)
            left = self._used(other, name) - amounts.get(name, 0)
            if left * share < factor * after * others:
                return False
        return True

    def in_order_of_removal(self, units: Iterable[DomainVictim]) -> Iterable[DomainVictim]:
        """Return the least important units first."""
        return reversed(most_important_first(units))

    def protected(self, removed: list[DomainVictim]) -> list[DomainVictim]:
        """Count units of other queues again that fit in what their queues deserve; return them.

        Removing a larger one after a smaller one may leave room for the smaller one.
        """
        tree, deserved, found = self.accounts.tree, self.shares.deserved, []
        for unit in most_important_first(removed):
            queue = self.queues.name_for(unit.pods[0].pod)
            amounts = added(requests_of(pod.pod) for pod in unit.pods)
            others = tree.diverging(self.queue, queue)[1]
            if any(self._within(name, amounts, deserved) for name in others):
                for pod in unit.pods:
                    self.add(pod)
                found.append(unit)
        return found


Claim = ElasticQuotaClaim | QueueClaim
"""The claim of a pod by namespace or by queue."""
