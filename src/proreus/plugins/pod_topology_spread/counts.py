"""The number of pods in each domain of the hard constraints: cycle state for Filter.

Worked example: ``maxSkew`` 1 over zones with 3, 2 and 2 pods, the pod matches its own selector. The
minimum is 2, so that a zone may have at most 1 + 2 - 1 = 2 pods before: the first zone is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from proreus.framework.domains import DomainSums
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo, SelectorKey
from proreus.plugins.pod_topology_spread.constraints import SpreadConstraint
from proreus.plugins.pod_topology_spread.topology_domains import (
    TopologyDomainCache,
    TopologyDomains,
)


class SpreadCounts(Struct, eq=False):
    """Counts by constraint.

    ``sums``: pods by domain. ``self_matches``: 1 if the pod itself counts for the constraint.
    ``min_match_nums``: the lowest counts, as far as they are known. ``matching_constraints``: by
    selector key the indices of the constraints that pods with that key count for.
    """

    constraints: Sequence[SpreadConstraint]
    domains: Sequence[TopologyDomains]
    sums: list[DomainSums]
    self_matches: Sequence[int]
    min_match_nums: dict[int, int] = field(default_factory=dict)
    matching_constraints: dict[SelectorKey, list[int]] = field(default_factory=dict)

    @classmethod
    def from_nodes(
        cls,
        constraints: Sequence[SpreadConstraint],
        pod: PodInfo,
        nodes: NodeTable,
        domain_cache: TopologyDomainCache,
        check: Callable[[], None],
    ) -> SpreadCounts:
        """Count the pods on all nodes for a pod; ``check`` may raise ``BudgetExceeded``."""
        domains = domain_cache.of(constraints, pod, nodes, all_keys=True)
        sums = []
        for constraint, one in zip(constraints, domains, strict=True):
            check()
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
        found = self.min_match_nums.get(index)
        if found is None:
            domains, by_code = self.domains[index], self.sums[index].by_code
            # A domain that is missing counts as an empty one (KEP-3022); without any there is no
            # minimum.
            if domains.counted < self.constraints[index].min_domains or not len(domains.known):
                found = 0
            # The usual case, where all domains count: a slice instead of a gather.
            elif len(domains.known) == domains.codes:
                found = int(by_code[: domains.codes].min())
            else:
                found = int(by_code[domains.known].min())
            self.min_match_nums[index] = found
        return found

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
        return replace(self, sums=sums, min_match_nums=dict(self.min_match_nums))

    def count_pod(
        self,
        pod: PodInfo,
        other: PodInfo,
        node: NodeInfo,
        step: int,
        domain_cache: TopologyDomainCache,
    ) -> bool:
        """Add (``step`` 1) or remove (-1) another pod on a node; return whether it can count."""
        matching = self.matching_constraints.get(other.selector_key)
        if matching is None:
            matching = self.matching_constraints[other.selector_key] = (
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
                    self.min_match_nums.pop(index, None)
        return True

    def _find_matching_constraints(self, pod: PodInfo, other: PodInfo) -> list[int]:
        if other.namespace != pod.namespace:
            return []
        labels = other.pod.metadata.labels
        return [i for i, c in enumerate(self.constraints) if c.selector.matches(labels)]
