"""Queueing hints: the events that may help a pod that InterPodAffinity rejected.

A pod is rejected for its own affinity, for its own anti-affinity, or for that of existing pods.
kube-scheduler's hints overlook some changes that end such a rejection (docs/parity.md); these find
all of them. A selector that does not parse raises; a hint that fails queues the pod.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from proreus.base.kubernetes_version import Change
from proreus.framework.affinity_terms import AffinityTerms, affinity_terms, affinity_terms_of
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
from proreus.framework.handle import Handle
from proreus.framework.interning import ABSENT
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.term_set import TermSet
from proreus.framework.tolerations import toleration_index
from proreus.objects.kinds import Namespace
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.taints import TolerationIndex
from proreus.plugins.inter_pod_affinity.feasibility import AffinityFeasibility, without_error
from proreus.plugins.inter_pod_affinity.namespaces import Labels, Namespaces


class AffinityHints:
    """The queueing hints."""

    def __init__(self, handle: Handle, namespaces: Namespaces) -> None:
        self._handle = handle
        self._namespaces = namespaces
        self._feasibility = AffinityFeasibility(handle, namespaces)
        gates = handle.feature_gates
        self._tries_in_unknown_namespaces = gates.includes(Change.UNKNOWN_NAMESPACE_MAY_MATCH)
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
        terms = without_error(affinity_terms(pod))
        if self._tries_in_unknown_namespaces and self._asks_unknown_labels(pod, terms, old, new):
            return True
        was = old is not None and self._feasibility.meets_affinity(terms, old)
        now = new is not None and self._feasibility.meets_affinity(terms, new)
        if now and not was:
            return True
        if (
            was
            and not now
            and self._feasibility.is_first(pod, terms)
            and self._feasibility.accepted(pod).any()
        ):
            return True
        if old is None:
            return False
        still = set() if new is None else self._feasibility.anti_affinity_keys(terms, new)
        lost = self._feasibility.anti_affinity_keys(terms, old) - still
        # The other may keep the pod away from one of its domains, and not from another any more.
        if lost and (not still or self._feasibility.accepted_near(pod, old, lost)):
            return True
        return new is None and self._feasibility.is_kept_away_by(old, pod)

    def _asks_unknown_labels(
        self, pod: PodInfo, terms: AffinityTerms, old: Pod | None, new: Pod | None
    ) -> bool:
        """Return whether a term asks for labels of a namespace that is not known."""
        known = self._namespaces.now.by_name
        ours = [terms.required] * (new is not None) + [terms.required_anti] * (old is not None)
        for other in (old, new):
            if other is not None and other.metadata.namespace not in known:
                namespace, labels = other.metadata.namespace, other.metadata.labels
                if any(required.asks_labels_of(namespace, labels) for required in ours):
                    return True
        if new is not None or old is None or pod.namespace in known:
            return False
        theirs = without_error(affinity_terms_of(old)).required_anti
        return theirs.asks_labels_of(pod.namespace, pod.pod.metadata.labels)

    def _is_schedulable_after_own_change(self, pod: PodInfo, old: Pod) -> bool:
        """Return whether it may help that the pod itself has other labels or tolerations."""
        if pod.pod.metadata.labels != old.metadata.labels:
            return True  # it may match other terms now, its own included
        terms = without_error(affinity_terms(pod))
        if terms.required or terms.required_anti:
            return False
        # A new node was of no use to the pod, because of its taints.
        before = TolerationIndex(old.spec.tolerations)
        return any(
            not self._feasibility.is_open_to(node, before) and self._feasibility.may_take(node, pod)
            for info in self._handle.nodes
            if (node := info.node) is not None
        )

    def is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        """Return whether a node that was added or given other labels may help."""
        terms = without_error(affinity_terms(pod))
        without_terms = not terms.required and not terms.required_anti
        if old is None:
            if without_terms:
                return self._feasibility.may_take(new, pod)
            # It may be near no pod that has to be kept away from, even without the topology keys.
            labels = new.metadata.labels
            return bool(terms.required_anti) or _differ(terms.required, labels, {})
        before, after = old.metadata.labels, new.metadata.labels
        if before == after:
            # It was no use that the node was new, because of its taints.
            closed_before = without_terms and not self._feasibility.is_open_to(
                old, toleration_index(pod)
            )
            return closed_before and self._feasibility.may_take(new, pod)
        if _differ(terms.required, after, before) or _differ(terms.required_anti, before, after):
            return True
        left = {key: value for key, value in before.items() if after.get(key) != value}
        return bool(left) and self._is_schedulable_after_node_left(pod, new, left)

    def _is_schedulable_after_node_left(self, pod: PodInfo, node: Node, left: Labels) -> bool:
        """Return whether it may help that a node, with its pods, has left domains.

        ``left``: the labels that it has no longer.
        """
        keeping = self._feasibility.matching(pod, left)
        if keeping and not self._feasibility.is_kept_away(pod, node):
            return True
        nodes, terms = self._handle.nodes, affinity_terms(pod)
        # Other nodes are there still, which its pods may have stood in the way of.
        keys = [key for key, _ in keeping if _has_nodes(nodes, key, left[key])]
        own_keys = [key for key, _ in terms.required.columns]
        may_be_first = any(key in left for key in own_keys) and self._feasibility.meets_affinity(
            terms, pod.pod
        )
        if not keys and not may_be_first:
            return False
        row = nodes.rows.get(node.metadata.name)
        # A node that is gone since: with it what is known of its pods.
        return row is None or any(
            (may_be_first and self._feasibility.meets_affinity(terms, other.pod))
            or self._feasibility.is_kept_away_by(other.pod, pod, keys.__contains__)
            for other in nodes[row].pods.values()
        )

    def is_schedulable_after_namespace_change(
        self, pod: PodInfo, old: Namespace | None, new: Namespace | None
    ) -> bool:
        """Return whether Filter accepts a node because of other labels of a namespace."""
        before = None if old is None else old.metadata.labels
        after = None if new is None else new.metadata.labels
        if before == after:
            return False
        name = (new or old).metadata.name  # type: ignore[union-attr]  # one of both is there
        terms = without_error(affinity_terms(pod))
        # The terms of existing pods may have selected the pod by the labels of its namespace.
        if name != pod.namespace and not any(
            _covers_otherwise(required, name, before, after)
            for required in (terms.required, terms.required_anti)
        ):
            return False
        earlier = self._namespaces.now.changed(name, before)
        return bool(
            (self._feasibility.accepted(pod) & ~self._feasibility.accepted(pod, earlier)).any()
        )


def _has_nodes(nodes: NodeTable, key: str, value: str) -> bool:
    """Return whether a node has a label."""
    if not nodes.has_label(key) or (code := nodes.label_values(key).find(value)) == ABSENT:
        return False
    return bool((nodes.label(key) == code).any())


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
