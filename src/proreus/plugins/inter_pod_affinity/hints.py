"""Queueing hints: the events that may help a pod that InterPodAffinity rejected.

A pod is rejected for its own affinity, for its own anti-affinity, or for that of existing pods.
kube-scheduler's hints overlook some changes that end such a rejection (docs/parity.md); these find
all of them. A selector that does not parse raises; a hint that fails queues the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import numpy as np

from proreus.base.kubernetes_version import Change
from proreus.framework.affinity_terms import AffinityTerms, affinity_terms, affinity_terms_of
from proreus.framework.domains import sum_by_domain
from proreus.framework.events import (
    ADD,
    ALL,
    DELETE,
    NAMESPACE,
    NODE,
    UPDATE_NODE_LABEL,
    UPDATE_NODE_TAINT,
    UPDATE_POD_LABEL,
    UPDATE_POD_TOLERATION,
    ClusterEvent,
)
from proreus.framework.existing_terms import WeightedCounts
from proreus.framework.handle import Handle
from proreus.framework.interning import ABSENT
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.term_set import Column, TermSet
from proreus.framework.tolerations import toleration_index
from proreus.objects.kinds import Namespace
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.selectors import SelectorError
from proreus.objects.taints import TolerationIndex
from proreus.plugins.inter_pod_affinity.namespaces import Namespaces
from proreus.plugins.node_unschedulable import TAINT as CORDON

Labels = Mapping[str, str]


def _has_any_label(key: str) -> bool:
    return True


class AffinityHints:
    """The queueing hints."""

    def __init__(self, handle: Handle, namespaces: Namespaces) -> None:
        self._handle = handle
        self._namespaces = namespaces
        gates = handle.feature_gates
        self._compare_numbers = gates.enabled("TaintTolerationComparisonOperators")
        self._node_actions = ADD | UPDATE_NODE_LABEL
        # Up to 1.36 each change of taints moves the pods that a plugin rejected by itself.
        if gates.includes(Change.NO_IMPLIED_TAINT_EVENT):
            self._node_actions |= UPDATE_NODE_TAINT

    def events(self) -> Iterable[ClusterEvent]:
        """Return the events that the plugin registers."""
        return (
            *pod_registrations(
                self._handle.feature_gates,
                assigned=ADD | UPDATE_POD_LABEL | DELETE,
                target=UPDATE_POD_LABEL | UPDATE_POD_TOLERATION,
                hint=self.is_schedulable_after_pod_change,
            ),
            ClusterEvent(NODE, self._node_actions, self.is_schedulable_after_node_change),
            ClusterEvent(NAMESPACE, ALL, self.is_schedulable_after_namespace_change),
        )

    def is_schedulable_after_pod_change(
        self, pod: PodInfo, old: Pod | None, new: Pod | None
    ) -> bool:
        """Return whether a pod that was added, deleted or given other labels may help."""
        if old is not None and new is not None and new.metadata.uid == pod.uid:
            return self._is_schedulable_after_own_change(pod, old)
        if any(other is not None and not _is_placed(other) for other in (old, new)):
            return False
        terms = _without_error(affinity_terms(pod))
        was = old is not None and self._meets_affinity(terms, old)
        now = new is not None and self._meets_affinity(terms, new)
        # A pod with affinity to itself may be the first again, once the last of the others is gone.
        if was != now and (now or self._meets_affinity(terms, pod.pod)):
            return True
        if old is None:
            return False
        still = set() if new is None else self._anti_affinity_keys(terms, new)
        if self._anti_affinity_keys(terms, old) - still:
            return True
        return new is None and self._is_kept_away_by(old, pod)

    def _is_schedulable_after_own_change(self, pod: PodInfo, old: Pod) -> bool:
        """Return whether it may help that the pod itself has other labels or tolerations."""
        if pod.pod.metadata.labels != old.metadata.labels:
            return True  # it may match other terms now, its own included
        terms = _without_error(affinity_terms(pod))
        if terms.required or terms.required_anti:
            return False
        # A new node was of no use to the pod, because of its taints.
        before = TolerationIndex(old.spec.tolerations)
        return any(
            not self._is_open_to(node, before) and self._may_take(node, pod)
            for info in self._handle.nodes
            if (node := info.node) is not None
        )

    def is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        """Return whether a node that was added or given other labels may help."""
        terms = _without_error(affinity_terms(pod))
        without_terms = not terms.required and not terms.required_anti
        if old is None:
            if without_terms:
                return self._may_take(new, pod)
            # It may be near no pod that has to be kept away from, even without the topology keys.
            labels = new.metadata.labels
            return bool(terms.required_anti) or _differ(terms.required, labels, {})
        before, after = old.metadata.labels, new.metadata.labels
        if before == after:
            # It was no use that the node was new, because of its taints.
            closed_before = without_terms and not self._is_open_to(old, toleration_index(pod))
            return closed_before and self._may_take(new, pod)
        if _differ(terms.required, after, before) or _differ(terms.required_anti, before, after):
            return True
        left = {key: value for key, value in before.items() if after.get(key) != value}
        return bool(left) and self._is_schedulable_after_node_left(pod, new, left)

    def _is_schedulable_after_node_left(self, pod: PodInfo, node: Node, left: Labels) -> bool:
        """Return whether it may help that a node, with its pods, has left domains.

        ``left``: the labels that it has no longer.
        """
        keeping = self._matching(pod, left)
        if keeping and not self._is_kept_away(pod, node):
            return True
        nodes, terms = self._handle.nodes, affinity_terms(pod)
        # Other nodes are there still, which its pods may have stood in the way of.
        keys = [key for key, _ in keeping if _has_nodes(nodes, key, left[key])]
        own_keys = [key for key, _ in terms.required.columns]
        may_be_first = any(key in left for key in own_keys) and self._meets_affinity(terms, pod.pod)
        if not keys and not may_be_first:
            return False
        row = nodes.rows.get(node.metadata.name)
        # A node that is gone since: with it what is known of its pods.
        return row is None or any(
            (may_be_first and self._meets_affinity(terms, other.pod))
            or self._is_kept_away_by(other.pod, pod, keys.__contains__)
            for other in nodes[row].pods.values()
        )

    def is_schedulable_after_namespace_change(
        self, pod: PodInfo, old: Namespace | None, new: Namespace | None
    ) -> bool:
        """Return whether other labels of a namespace may help."""
        before = None if old is None else old.metadata.labels
        after = None if new is None else new.metadata.labels
        if before == after:
            return False
        name = (new or old).metadata.name  # type: ignore[union-attr]  # one of both is there
        # The terms of existing pods may have selected the pod by the labels of its namespace.
        if name == pod.namespace:
            return True
        terms = _without_error(affinity_terms(pod))
        return any(
            _covers_otherwise(required, name, before, after)
            for required in (terms.required, terms.required_anti)
        )

    def _meets_affinity(self, terms: AffinityTerms, pod: Pod) -> bool:
        """Return whether all required affinity terms, of which there are some, select a pod."""
        return self._namespaces.within(terms.required).all_select(pod)

    def _anti_affinity_keys(self, terms: AffinityTerms, pod: Pod) -> set[str]:
        """Return the topology keys of the required anti-affinity terms that select a pod."""
        anti = terms.required_anti
        selecting = self._namespaces.within(anti).selecting_pod(pod) if anti else None
        return set() if selecting is None else {key for key, _ in anti.sums_by_key(selecting)}

    def _may_take(self, node: Node, pod: PodInfo) -> bool:
        """Return whether neither taints nor existing pods keep a pod without terms off a node."""
        is_open = self._is_open_to(node, toleration_index(pod))
        return is_open and not self._is_kept_away(pod, node)

    def _is_open_to(self, node: Node, tolerations: TolerationIndex) -> bool:
        """Return whether these tolerate a node's taints, and its cordon."""
        spec = node.spec
        taints = (CORDON, *spec.taints) if spec.unschedulable else spec.taints
        compare = self._compare_numbers
        return tolerations.first_untolerated(taints, compare_numbers=compare) is None

    def _is_kept_away(self, pod: PodInfo, node: Node) -> bool:
        """Return whether existing pods keep the pod out of a domain of a node."""
        nodes, labels = self._handle.nodes, node.metadata.labels
        return any(
            sum_by_domain(nodes, key, nodes.count_terms(theirs))[
                nodes.label_values(key).find(labels[key])
            ]
            for (key, _), theirs in self._matching(pod, labels).items()
            if nodes.has_label(key)
        )

    def _matching(self, pod: PodInfo, keys: Container[str]) -> dict[Column, WeightedCounts]:
        """Return the terms by which existing pods keep the pod out of domains of these keys."""
        return self._handle.nodes.pod_index.required_anti.matching(
            pod.namespace,
            pod.pod.metadata.labels,
            self._namespaces.labels_of(pod),
            keys.__contains__,
        )

    def _is_kept_away_by(
        self, other: Pod, pod: PodInfo, has_label: Callable[[str], bool] = _has_any_label
    ) -> bool:
        """Return whether a required anti-affinity term of another pod selects the pod.

        ``has_label``: whether a topology key counts.
        """
        theirs = _without_error(affinity_terms_of(other)).required_anti
        covering = theirs.covering(pod.namespace, self._namespaces.labels_of(pod))
        selecting = theirs.selecting(covering, pod.pod.metadata.labels)
        return selecting is not None and any(
            has_label(key) for key, _ in theirs.sums_by_key(selecting)
        )


def _has_nodes(nodes: NodeTable, key: str, value: str) -> bool:
    """Return whether a node has a label."""
    if not nodes.has_label(key) or (code := nodes.label_values(key).find(value)) == ABSENT:
        return False
    return bool((nodes.label(key) == code).any())


def _without_error(terms: AffinityTerms) -> AffinityTerms:
    if terms.error:
        raise SelectorError(terms.error)
    return terms


def _is_placed(pod: Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _differ(terms: TermSet, labels: Labels, other: Labels) -> bool:
    """Return whether a node with the first labels is in a domain, and not in that of the other.

    Of the topology keys of these terms.
    """
    return any(key in labels and labels[key] != other.get(key) for key, _ in terms.columns)


def _covers_otherwise(
    terms: TermSet, namespace: str, before: Labels | None, after: Labels | None
) -> bool:
    """Return whether a term is about a namespace with the one labels and not with the other.

    None means that the namespace does not exist.
    """
    was, now = terms.covering(namespace, before), terms.covering(namespace, after)
    return (was is None) != (now is None) or (
        was is not None and now is not None and not np.array_equal(was, now)
    )
