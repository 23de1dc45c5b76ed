"""Queueing hints: which events may make a pod schedulable that InterPodAffinity rejected.

A pod is rejected for its own affinity, for its own anti-affinity, or for that of existing pods.
kube-scheduler's hints overlook some changes that end such a rejection (docs/parity.md); these find
all of them. A selector that does not parse raises; a hint that fails queues the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import numpy as np

from proreus.base.kubernetes_version import Change
from proreus.framework.affinity_terms import (
    AffinityTerm,
    AffinityTerms,
    affinity_terms,
    affinity_terms_of,
)
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
from proreus.framework.existing_terms import ExistingTerm, by_topology_key
from proreus.framework.handle import Handle
from proreus.framework.interning import ABSENT
from proreus.framework.many_terms import ManyTerms
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.tolerations import toleration_index
from proreus.framework.verdicts import BoolArray
from proreus.objects.kinds import Namespace
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.selectors import SelectorError
from proreus.objects.taints import TolerationIndex
from proreus.plugins.inter_pod_affinity.incoming import IncomingTermsCache
from proreus.plugins.node_unschedulable import TAINT as CORDON

Labels = Mapping[str, str]


def _has_any_label(key: str) -> bool:
    return True


class AffinityHints:
    """The queueing hints. ``incoming``: the terms of the pods that wait."""

    def __init__(self, handle: Handle, incoming: IncomingTermsCache) -> None:
        self._handle = handle
        self._incoming = incoming
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
        before, after = TolerationIndex(old.spec.tolerations), toleration_index(pod)
        # A new node was of no use to the pod, because of its taints.
        return any(
            self._is_open_to(node, after)
            and not self._is_open_to(node, before)
            and not self._is_kept_away(pod, node)
            for info in self._handle.nodes
            if (node := info.node) is not None
        )

    def is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        """Return whether a node that was added or given other labels may help."""
        terms, tolerations = _without_error(affinity_terms(pod)), toleration_index(pod)
        without_terms = not terms.required and not terms.required_anti
        if old is None:
            if without_terms:
                return self._is_open_to(new, tolerations) and not self._is_kept_away(pod, new)
            # It may be near no pod that has to be kept away from, even without the topology keys.
            labels = new.metadata.labels
            return bool(terms.required_anti) or any(_differs(t, labels, {}) for t in terms.required)
        before, after = old.metadata.labels, new.metadata.labels
        if before == after:
            # It was no use that the node was new, because of its taints.
            return (
                without_terms
                and self._is_open_to(new, tolerations)
                and not self._is_open_to(old, tolerations)
                and not self._is_kept_away(pod, new)
            )
        if any(_differs(term, after, before) for term in terms.required) or any(
            _differs(term, before, after) for term in terms.required_anti
        ):
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
        topology_keys = {existing.term.topology_key for existing in keeping}
        keys = [key for key in topology_keys if _has_nodes(nodes, key, left[key])]
        may_be_first = any(t.topology_key in left for t in terms.required) and self._meets_affinity(
            terms, pod.pod
        )
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
            _covers_otherwise(many, few, name, before, after)
            for many, few in (
                (terms.many_required, terms.required),
                (terms.many_required_anti, terms.required_anti),
            )
        )

    def _meets_affinity(self, terms: AffinityTerms, pod: Pod) -> bool:
        """Return whether all required affinity terms, of which there are some, select a pod."""
        if terms.many_required is not None:
            selecting = self._incoming.in_namespaces(terms.many_required).selecting_pod(pod)
            return selecting is not None and bool(selecting.all())
        required = terms.required
        return bool(required) and all(self._incoming.selects(term, pod) for term in required)

    def _anti_affinity_keys(self, terms: AffinityTerms, pod: Pod) -> set[str]:
        """Return the topology keys of the required anti-affinity terms that select a pod."""
        many = terms.many_required_anti
        if many is None:
            anti = terms.required_anti
            return {term.topology_key for term in anti if self._incoming.selects(term, pod)}
        selecting = self._incoming.in_namespaces(many).selecting_pod(pod)
        return set() if selecting is None else set(_keys_of(many, selecting))

    def _is_open_to(self, node: Node, tolerations: TolerationIndex) -> bool:
        """Return whether a pod tolerates a node's taints, and its cordon."""
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
            for (key, _), theirs in by_topology_key(self._matching(pod, labels)).items()
            if nodes.has_label(key)
        )

    def _matching(self, pod: PodInfo, keys: Container[str]) -> list[ExistingTerm]:
        """Return the terms by which existing pods keep the pod out of domains of these keys."""
        return self._handle.nodes.pod_index.required_anti.matching(
            pod.namespace,
            pod.pod.metadata.labels,
            self._incoming.namespace_labels(pod.pod),
            keys.__contains__,
        )

    def _is_kept_away_by(
        self, other: Pod, pod: PodInfo, has_label: Callable[[str], bool] = _has_any_label
    ) -> bool:
        """Return whether a required anti-affinity term of another pod selects the pod.

        ``has_label``: whether a topology key counts.
        """
        theirs = _without_error(affinity_terms_of(other))
        namespace, labels = pod.namespace, pod.pod.metadata.labels
        namespace_labels = self._incoming.namespace_labels(pod.pod)
        many = theirs.many_required_anti
        if many is None:
            return any(
                has_label(t.topology_key) and t.matches(namespace, labels, namespace_labels)
                for t in theirs.required_anti
            )
        covering = many.covering(namespace, namespace_labels)
        selecting = None if covering is None else many.selecting(covering, labels)
        return selecting is not None and any(map(has_label, _keys_of(many, selecting)))


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


def _differs(term: AffinityTerm, labels: Labels, other: Labels) -> bool:
    """Return whether a node with the first labels is in a domain, and not in that of the other."""
    value = labels.get(term.topology_key)
    return value is not None and value != other.get(term.topology_key)


def _keys_of(many: ManyTerms, selecting: BoolArray) -> list[str]:
    """Return the topology keys of those of many required terms that select a pod."""
    sums = many.sums(selecting).tolist()
    return [key for (key, _), sum_ in zip(many.columns, sums, strict=True) if sum_]


def _covers_otherwise(
    many: ManyTerms | None,
    few: Iterable[AffinityTerm],
    namespace: str,
    before: Labels | None,
    after: Labels | None,
) -> bool:
    """Return whether a term is about a namespace with the one labels and not with the other.

    None: there is no such namespace.
    """
    if many is not None:
        was, now = many.covering(namespace, before), many.covering(namespace, after)
        return (was is None) != (now is None) or (
            was is not None and now is not None and not np.array_equal(was, now)
        )
    return any(
        term.namespaces.isdisjoint((namespace,))
        and (before is not None and term.namespace_selector.matches(before))
        != (after is not None and term.namespace_selector.matches(after))
        for term in few
    )
