"""The plugin: who may start, who may borrow, and whose pods are evicted for a guarantee.

Worked example: A is guaranteed 4 CPUs and uses 5, B is guaranteed 6 and uses 4. A may have one more
as long as the sum stays within 10. A pod of B that asks for 2 is within B's guarantee, but the sum
would be 11: pods of A are evicted, whatever their priority, since A has more than its guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proreus.addons.capacity_scheduling.quotas import (
    ELASTIC_QUOTAS,
    Amounts,
    Bounds,
    ElasticQuota,
    NamespaceUsage,
    Quotas,
    added,
    requests_of,
)
from proreus.addons.preemption_texts import without_prefix
from proreus.framework import (
    ClusterEvent,
    Code,
    CycleState,
    Handle,
    NodeInfo,
    NodeTable,
    PodInfo,
    PostFilterResult,
    PreFilterPlugin,
    ReservePlugin,
    Rows,
    Status,
    Verdicts,
    events,
)
from proreus.objects import PODS, Pod, condition_of
from proreus.plugins.default_preemption import (
    Candidate,
    DefaultPreemption,
    DefaultPreemptionArgs,
    DisruptionBudgets,
    NodeDryRun,
    sorted_by_importance,
)

_COUNTED_PHASES = ("", "Pending", "Running")


class CapacitySchedulingArgs(DefaultPreemptionArgs):
    """Those of DefaultPreemption are taken; all nodes are looked at whatever they say."""


@dataclass
class _Claim:
    """What a pod claims. ``quotas``: as they are in this cycle.

    ``requests``: of the pod; ``own``: and of nominated pods of its namespace; ``total``: and of
    those of others that are within their guarantees. ``ignores_sum``: see ``_ignores_sum``.
    """

    quotas: Quotas
    requests: Amounts
    own: Amounts
    total: Amounts
    ignores_sum: bool = False

    def clone(self) -> _Claim:
        return _Claim(self.quotas.clone(), self.requests, self.own, self.total, self.ignores_sum)

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that are tested: those that the pod requests."""
        return tuple(name for name, amount in self.requests.items() if amount)

    def borrows(self, namespace: str) -> bool:
        """Return whether the claim is over the guarantee of its namespace."""
        return namespace in self.quotas and self.quotas.over_min_with(
            namespace, self.own, self.resources
        )

    def over_max(self, namespace: str, claimed: Amounts) -> bool:
        return self.quotas.over_max_with(namespace, claimed, self.resources)

    def over_sum(self, claimed: Amounts) -> bool:
        return not self.ignores_sum and self.quotas.sum_over_min_with(claimed, self.resources)


class CapacityScheduling(DefaultPreemption, PreFilterPlugin, ReservePlugin):
    """Keeps namespaces within their ElasticQuotas, and gives guarantees back to who claims them."""

    Args = CapacitySchedulingArgs

    def __init__(self, args: CapacitySchedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._quotas: dict[str, dict[str, Bounds]] = {}
        """By namespace and name, in the order of their coming."""
        self._usage: dict[str, NamespaceUsage] = {}
        """Of all namespaces: a quota may come after the pods that it counts."""
        handle.on_change(ELASTIC_QUOTAS, self._quota_changed)
        handle.on_change(PODS, self._pod_changed)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register deleted pods, and any change of quotas."""
        return (
            *super().events_to_register(),
            ClusterEvent(events.ASSIGNED_POD, events.DELETE, hint=self._may_help),
            ClusterEvent(ELASTIC_QUOTAS.id, events.ALL),
        )

    def _may_help(self, pod: PodInfo, old: Any, new: Any) -> bool:
        return pod.namespace in self._quotas and old.metadata.namespace in self._quotas

    # ---- what is used --------------------------------------------------------------------------

    def _quota_changed(self, old: ElasticQuota | None, new: ElasticQuota | None) -> None:
        quota = new or old
        assert quota is not None
        meta = quota.metadata
        if new is not None:
            self._quotas.setdefault(meta.namespace, {})[meta.name] = Bounds.of(new)
            return
        quotas = self._quotas.get(meta.namespace, {})
        quotas.pop(meta.name, None)
        if not quotas:
            self._quotas.pop(meta.namespace, None)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if new is None or new.status.phase not in _COUNTED_PHASES:
            self._forget(pod)
        elif new.spec.node_name:
            self._note(new)

    def _note(self, pod: Pod) -> None:
        usage = self._usage.setdefault(pod.metadata.namespace, NamespaceUsage())
        usage.add(pod.metadata.uid, requests_of(pod))

    def _forget(self, pod: Pod) -> None:
        usage = self._usage.get(pod.metadata.namespace)
        if usage is not None:
            usage.remove(pod.metadata.uid)
            if not usage.pods:
                del self._usage[pod.metadata.namespace]

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Count the pod."""
        self._note(pod.pod)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Do not count the pod any more."""
        self._forget(pod.pod)

    def quotas(self) -> Quotas:
        """Return a snapshot of all quotas, the first of each namespace."""
        bounds = {name: next(iter(found.values())) for name, found in self._quotas.items()}
        usage = {name: one for name, one in self._usage.items() if name in bounds}
        return Quotas(bounds, usage)

    # ---- PreFilter -----------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Reject a pod that is beyond its maximum, or borrows what is not idle."""
        claim = self._claim(pod)
        state.write(self.name, claim)
        if pod.namespace not in claim.quotas:
            return None
        rejected = f"Pod {pod.key} is rejected in PreFilter because "
        if claim.over_max(pod.namespace, claim.own):
            return Status.unschedulable(f"{rejected}ElasticQuota {pod.namespace} is more than Max")
        if claim.over_sum(claim.total):
            return Status.unschedulable(f"{rejected}total ElasticQuota used is more than min")
        return None

    def _claim(self, pod: PodInfo) -> _Claim:
        quotas, requests = self.quotas(), requests_of(pod.pod)
        own, others = [requests], []
        nominator = self.handle.nominator
        for node_name in nominator.nominated_nodes():
            for other in nominator.nominated_pods(node_name):
                if other.uid == pod.uid or other.namespace not in quotas:
                    continue
                if other.namespace == pod.namespace:
                    if other.priority >= pod.priority:
                        own.append(requests_of(other.pod))
                elif not quotas.over_min(other.namespace):
                    others.append(requests_of(other.pod))
        claim = _Claim(quotas, requests, added(own), added((*own, *others)))
        claim.ignores_sum = self._ignores_sum(pod, claim)
        return claim

    def _ignores_sum(self, pod: PodInfo, claim: _Claim) -> bool:
        """Return whether the sum of guarantees is used up already, and the pod is within its own.

        So it is after quotas were lowered, or came after pods: a guarantee counts all the same.
        """
        quotas, resources = claim.quotas, claim.resources
        return (
            pod.namespace in quotas
            and not quotas.over_min_with(pod.namespace, claim.own, resources)
            and quotas.sum_over_min_with({}, resources)
        )

    def add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> bool | None:
        """Count a pod in the snapshot."""
        claim: _Claim = state.read(self.name)
        claim.quotas.add(added.namespace, added.uid, requests_of(added.pod))
        return None

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> bool | None:
        """Do not count a pod any more in the snapshot."""
        claim: _Claim = state.read(self.name)
        claim.quotas.remove(removed.namespace, removed.uid)
        return None

    # ---- PostFilter ----------------------------------------------------------------------------

    async def post_filter(
        self, state: CycleState, pod: PodInfo, verdicts: Verdicts
    ) -> PostFilterResult:
        """Take guarantees back, or preempt within the namespace."""
        return without_prefix(await super().post_filter(state, pod, verdicts))

    def num_candidates(self, nodes: int) -> int:
        """Return all of them."""
        return nodes

    def order_of_nodes(self, rows: Rows) -> Rows:
        """Return the rows as they are."""
        return rows

    def ineligibility(self, state: CycleState, pod: Pod, verdicts: Verdicts) -> str:
        """Return why the pod may not preempt; "" if it may."""
        if pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nodes = self.handle.nodes
        row = nodes.rows.get(pod.status.nominated_node_name)
        status = None if row is None else verdicts.status(row)
        if row is None or (status is not None and status.code == Code.UNRESOLVABLE):
            return ""
        claim: _Claim = state.read(self.name)
        preemptor, borrows = PodInfo(pod), claim.borrows(pod.metadata.namespace)
        for other in nodes[row].pods.values():
            if _is_terminating(other.pod) and _is_victim(claim, preemptor, other, borrows):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def select_victims_on_node(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, budgets: DisruptionBudgets
    ) -> Candidate | Status:
        """Remove all potential victims, then put back as many as filters and quotas allow."""
        dry_run = NodeDryRun(self.handle, state, pod, node)
        claim: _Claim = dry_run.state.read(self.name)
        # Asked once: it is the pod's guarantee as it was. Whether others are over theirs changes.
        borrows, potential = claim.borrows(pod.namespace), []
        for uid in node.order:
            if _is_victim(claim, pod, node.pods[uid], borrows):
                potential.append(node.pods[uid])
                dry_run.remove(node.pods[uid])
        if not potential:
            text = f"No victims found on node {node.name} for preemptor pod {pod.name}"
            return Status.unresolvable(text)
        rejected = dry_run.rejection()
        if rejected is not None:
            return rejected
        has_quota = pod.namespace in claim.quotas
        if has_quota and claim.over_sum(claim.requests):
            return Status.unschedulable("global quota max exceeded")
        if has_quota and claim.over_max(pod.namespace, claim.requests):
            return Status.unschedulable("global quota max exceeded")
        violating, others = budgets.filter_pods_with_pdb_violation(sorted_by_importance(potential))
        victims, violations = [], 0
        for number, victim in enumerate((*violating, *others)):
            dry_run.add(victim)
            over = has_quota and (
                claim.over_max(pod.namespace, claim.own) or claim.over_sum(claim.total)
            )
            if over or dry_run.rejection() is not None:
                dry_run.remove(victim)
                victims.append(victim)
                violations += number < len(violating)
        return Candidate(node.name, tuple(sorted_by_importance(victims)), violations)


def _is_victim(claim: _Claim, pod: PodInfo, other: PodInfo, borrows: bool) -> bool:
    """Return whether a pod may be evicted for another. ``borrows``: see ``_Claim.borrows``.

    Over its own guarantee, a pod preempts less important ones of its namespace; within it, any of
    namespaces that are over theirs. Without quota: less important ones without quota.
    """
    quotas = claim.quotas
    if pod.namespace not in quotas:
        return other.namespace not in quotas and other.priority < pod.priority
    if other.namespace not in quotas:
        return False
    if borrows:
        return other.namespace == pod.namespace and other.priority < pod.priority
    return other.namespace != pod.namespace and quotas.over_min(other.namespace)


def _is_terminating(pod: Pod) -> bool:
    return (
        pod.metadata.deletion_timestamp is not None
        or condition_of(pod, "DisruptionTarget") is not None
    )
