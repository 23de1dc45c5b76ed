"""The number of pods in each domain of the hard constraints: cycle state for Filter.

Worked example: ``maxSkew`` 1 over zones with 3, 2 and 2 pods, the pod matches its own selector. The
minimum is 2, so that a zone may have at most 1 + 2 - 1 = 2 pods before: the first zone is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proreus.framework.attempt_budget import AttemptBudget
from proreus.framework.domains import DomainSums
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo, SelectorKey
from proreus.plugins.pod_topology_spread.constraints import SpreadConstraint
from proreus.plugins.pod_topology_spread.topology_domains import (
    TopologyDomainCache,
    TopologyDomains,
)


class SpreadCounts:
    """Counts by constraint.

    ``sums``: pods by domain. ``self_matches``: 1 if the pod itself counts for the constraint.
    """

    __slots__ = (
        "_domains",
        "_matching_constraints",
        "_min_match_nums",
        "constraints",
        "self_matches",
        "sums",
    )

    def __init__(
        self,
        constraints: Sequence[SpreadConstraint],
        domains: Sequence[TopologyDomains],
        sums: list[DomainSums],
        self_matches: Sequence[int],
    ) -> None:
        self.constraints = constraints
        self.sums = sums
        self.self_matches = self_matches
        self._domains = domains
        self._min_match_nums: list[int | None] = [None] * len(constraints)
        self._matching_constraints: dict[SelectorKey, list[int]] = {}
        """By selector key: the indices of the constraints that pods with that key count for."""

    @classmethod
    def from_nodes(
        cls,
        constraints: Sequence[SpreadConstraint],
        pod: PodInfo,
        nodes: NodeTable,
        domain_cache: TopologyDomainCache,
        budget: AttemptBudget | None = None,
    ) -> SpreadCounts:
        """Count the pods on all nodes for a pod; raises ``BudgetExceeded``."""
        domains = domain_cache.of(constraints, pod, nodes, all_keys=True)
        sums = []
        for constraint, one in zip(constraints, domains, strict=True):
            if budget is not None:
                budget.check("PodTopologySpread", "PreFilter")
            values = nodes.label_values(constraint.topology_key)
            # Without a domain to count in, pods need not be looked for.
            if constraint.query is None or not one.codes:
                by_code = np.zeros(one.codes + 1, dtype=np.int64)
            else:
                by_code = one.sums(nodes.count_pods(constraint.query))
            sums.append(DomainSums(values, by_code))
        return cls(
            constraints,
            domains,
            sums,
            [c.selector.matches(pod.pod.metadata.labels) for c in constraints],
        )

    def min_match_num(self, index: int) -> int:
        """Return the lowest count of a domain; 0 if there are fewer domains than minDomains."""
        known = self._min_match_nums[index]
        if known is None:
            known = self._min_match_nums[index] = self._compute_min_match_num(index)
        return known

    def _compute_min_match_num(self, index: int) -> int:
        domains, by_code = self._domains[index], self.sums[index].by_code
        # A domain that is missing counts as an empty one (KEP-3022); without any there is no
        # minimum.
        if domains.counted < self.constraints[index].min_domains or not len(domains.known):
            return 0
        # The usual case, where all domains count: a slice instead of a gather.
        if len(domains.known) == domains.codes:
            return int(by_code[: domains.codes].min())
        return int(by_code[domains.known].min())

    def skew_limit(self, index: int) -> int:
        """Return the highest count with which a domain may take the pod.

        kube-scheduler's condition is count + self match - minimum <= maxSkew.
        """
        return (
            self.constraints[index].max_skew + self.min_match_num(index) - self.self_matches[index]
        )

    def clone(self) -> SpreadCounts:
        """Return a copy for a dry run."""
        sums = [one.fork() for one in self.sums]
        other = SpreadCounts(self.constraints, self._domains, sums, self.self_matches)
        other._min_match_nums = list(self._min_match_nums)
        other._matching_constraints = self._matching_constraints
        return other

    def count_pod(
        self,
        pod: PodInfo,
        other: PodInfo,
        node: NodeInfo,
        step: int,
        domain_cache: TopologyDomainCache,
    ) -> bool:
        """Add (``step`` 1) or remove (-1) another pod on a node; return whether it can count."""
        matching = self._matching_constraints.get(other.selector_key)
        if matching is None:
            matching = self._matching_constraints[other.selector_key] = (
                self._find_matching_constraints(pod, other)
            )
        if not matching:
            return False
        # As in the PreFilter: a node that lacks the key of any constraint counts for none of them.
        labels = node.labels
        if all(constraint.topology_key in labels for constraint in self.constraints):
            for index in matching:
                constraint = self.constraints[index]
                if domain_cache.accepts(constraint, pod, node):
                    self.sums[index].add(labels[constraint.topology_key], step)
                    self._min_match_nums[index] = None
        return True

    def _find_matching_constraints(self, pod: PodInfo, other: PodInfo) -> list[int]:
        if other.namespace != pod.namespace:
            return []
        labels = other.pod.metadata.labels
        return [i for i, c in enumerate(self.constraints) if c.selector.matches(labels)]
