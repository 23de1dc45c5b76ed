"""Where existing pods let a waiting pod go: the questions that queueing hints ask.

The answers are about the cluster as it is now. A selector that does not parse raises.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import numpy as np

from proreus.framework.affinity_terms import AffinityTerms, affinity_terms_of
from proreus.framework.domains import any_in_domain, sum_by_domain
from proreus.framework.existing_terms import WeightedCounts
from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.term_set import Column
from proreus.framework.tolerations import toleration_index
from proreus.framework.verdicts import BoolArray
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.selectors import SelectorError
from proreus.objects.taints import TolerationIndex
from proreus.plugins.inter_pod_affinity.counts import AffinityCounts
from proreus.plugins.inter_pod_affinity.namespaces import NamespaceLabels, Namespaces
from proreus.plugins.node_unschedulable import TAINT as CORDON


def _has_any_label(key: str) -> bool:
    return True


def without_error(terms: AffinityTerms) -> AffinityTerms:
    """Return a pod's terms; raises ``SelectorError`` if one does not parse."""
    if terms.error:
        raise SelectorError(terms.error)
    return terms


class AffinityFeasibility:
    """Answers for a waiting pod."""

    def __init__(self, handle: Handle, namespaces: Namespaces) -> None:
        self._handle = handle
        self._namespaces = namespaces
        gates = handle.feature_gates
        self._compare_numbers = gates.enabled("TaintTolerationComparisonOperators")
        self._hostname_fast_path = gates.enabled("InterPodAffinityHostnameFastPath")

    def meets_affinity(self, terms: AffinityTerms, pod: Pod) -> bool:
        """Return whether all required affinity terms, of which there are some, select a pod."""
        return self._namespaces.now.within(terms.required).all_select(pod)

    def is_first(self, pod: PodInfo, terms: AffinityTerms) -> bool:
        """Return whether no existing pod meets the affinity, and the pod itself does."""
        if not self.meets_affinity(terms, pod.pod):
            return False
        nodes, required = self._handle.nodes, self._namespaces.now.within(terms.required)
        counts = nodes.count_selected_by_all(required, lambda: None)
        return not any(any_in_domain(nodes, key, counts) for key, _ in terms.required.columns)

    def anti_affinity_keys(self, terms: AffinityTerms, pod: Pod) -> set[str]:
        """Return the topology keys of the required anti-affinity terms that select a pod."""
        anti = terms.required_anti
        selecting = self._namespaces.now.within(anti).selecting_pod(pod) if anti else None
        return set() if selecting is None else {key for key, _ in anti.sums_by_key(selecting)}

    def accepted_near(self, pod: PodInfo, other: Pod, keys: Iterable[str]) -> bool:
        """Return whether Filter accepts a node in a domain, of these keys, of another pod's."""
        nodes = self._handle.nodes
        row = nodes.rows.get(other.spec.node_name)
        if row is None:
            return True
        near = np.zeros(nodes.size, dtype=np.bool_)
        for key in filter(nodes.has_label, keys):
            codes = nodes.label(key)
            near |= codes == codes[row]
        return bool((near & self.accepted(pod)).any())

    def accepted(self, pod: PodInfo, namespaces: NamespaceLabels | None = None) -> BoolArray:
        """Return the nodes that Filter accepts; ``namespaces``: None for those of now."""
        namespaces = namespaces or self._namespaces.now
        nodes, fast_path = self._handle.nodes, self._hostname_fast_path
        counts = AffinityCounts.from_nodes(pod, namespaces, nodes, lambda: None, fast_path)
        accepted = np.ones(nodes.size, dtype=np.bool_)
        for _, rows in counts.rejections(nodes):
            accepted &= ~rows
        return accepted

    def may_take(self, node: Node, pod: PodInfo) -> bool:
        """Return whether neither taints nor existing pods keep a pod without terms off a node."""
        is_open = self.is_open_to(node, toleration_index(pod))
        return is_open and not self.is_kept_away(pod, node)

    def is_open_to(self, node: Node, tolerations: TolerationIndex) -> bool:
        """Return whether these tolerate a node's taints, and its cordon."""
        spec = node.spec
        taints = (CORDON, *spec.taints) if spec.unschedulable else spec.taints
        compare = self._compare_numbers
        return tolerations.first_untolerated(taints, compare_numbers=compare) is None

    def is_kept_away(self, pod: PodInfo, node: Node) -> bool:
        """Return whether existing pods keep the pod out of a domain of a node."""
        nodes, labels = self._handle.nodes, node.metadata.labels
        return any(
            sum_by_domain(nodes, key, nodes.count_terms(theirs))[
                nodes.label_values(key).find(labels[key])
            ]
            for (key, _), theirs in self.matching(pod, labels).items()
            if nodes.has_label(key)
        )

    def matching(self, pod: PodInfo, keys: Container[str]) -> dict[Column, WeightedCounts]:
        """Return the terms by which existing pods keep the pod out of domains of these keys."""
        return self._handle.nodes.pod_index.required_anti.matching(
            pod.namespace,
            pod.pod.metadata.labels,
            self._namespaces.now.of(pod),
            keys.__contains__,
        )

    def is_kept_away_by(
        self, other: Pod, pod: PodInfo, has_label: Callable[[str], bool] = _has_any_label
    ) -> bool:
        """Return whether a required anti-affinity term of another pod selects the pod.

        ``has_label``: whether a topology key counts.
        """
        theirs = without_error(affinity_terms_of(other)).required_anti
        covering = theirs.covering(pod.namespace, self._namespaces.now.of(pod))
        selecting = theirs.selecting(covering, pod.pod.metadata.labels)
        return selecting is not None and any(
            has_label(key) for key, _ in theirs.sums_by_key(selecting)
        )
