"""Counts of existing pods by topology domain: cycle state for Filter.

PreFilter computes them from columns; AddPod and RemovePod update them in a dry run.

Worked example: the pod requires zone affinity to ``app=db``; zones ``a`` and ``b`` run 2 and 0 such
pods. ``affinity["topology.kubernetes.io/zone"]`` is 2 and 0, so that Filter rejects zone ``b``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from proreus.framework.affinity_terms import affinity_terms
from proreus.framework.domains import DomainSums, sum_by_domain
from proreus.framework.interning import ABSENT
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.term_set import TermsInNamespaces
from proreus.framework.verdicts import BoolArray, IntArray
from proreus.objects.node import LABEL_HOSTNAME
from proreus.plugins.inter_pod_affinity.namespaces import NamespaceLabels

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"

_NAME = "InterPodAffinity"
AFFINITY_REJECTED = Status.unresolvable(REASON_AFFINITY).with_plugin(_NAME)
ANTI_AFFINITY_REJECTED = Status.unschedulable(REASON_ANTI_AFFINITY).with_plugin(_NAME)
EXISTING_REJECTED = Status.unschedulable(REASON_EXISTING).with_plugin(_NAME)

Sums = dict[str, DomainSums]
"""Counts by topology key and domain."""


class AffinityCounts(Struct, eq=False):
    """The counts for one incoming pod, with its ``required`` and ``required_anti`` terms.

    ``affinity``: existing pods that match all required affinity terms, by each of their keys.
    ``anti``: existing pods that match a required anti-affinity term of the pod. ``existing``:
    existing pods with a required anti-affinity term that matches the pod. ``self_affine``: the pod
    matches all its own affinity terms.

    With gate InterPodAffinityHostnameFastPath, ``matching_anywhere``: existing pods that match all
    required affinity terms, on nodes without the hostname label as well, where all terms are about
    the hostname; else None. ``hostname_terms``: an existing pod has a required anti-affinity term
    about the hostname.
    """

    required: TermsInNamespaces
    required_anti: TermsInNamespaces
    namespace_labels: Mapping[str, str]
    affinity: Sums
    anti: Sums
    existing: Sums
    self_affine: bool
    matching_anywhere: int | None
    hostname_terms: bool

    @classmethod
    def from_nodes(
        cls,
        pod: PodInfo,
        namespaces: NamespaceLabels,
        nodes: NodeTable,
        check: Callable[[], None],
        hostname_fast_path: bool,
    ) -> AffinityCounts:
        """Count the pods on all nodes for a pod; ``check`` may raise ``BudgetExceeded``."""
        terms, namespace_labels = affinity_terms(pod), namespaces.of(pod)
        required = namespaces.within(terms.required)
        required_anti = namespaces.within(terms.required_anti)
        matching_anywhere = None
        affinity: Sums = {}
        keys = [key for key, _ in required.terms.columns]
        if keys:
            # An existing pod counts for affinity only if it matches all the terms.
            counts = nodes.count_selected_by_all(required, check)
            if hostname_fast_path and keys == [LABEL_HOSTNAME]:
                matching_anywhere = int(counts.sum())
            # A key that no node has rejects all nodes, whatever the others count.
            missing = next((key for key in keys if not nodes.has_label(key)), None)
            for key in keys if missing is None else (missing,):
                _count_in(affinity, nodes, key, counts)
        anti: Sums = {}
        # Without the key no node is in a domain, and no pod of a dry run either.
        for (key, _), counts in nodes.count_selected(required_anti, check):
            _count_in(anti, nodes, key, counts)
        existing: Sums = {}
        index = nodes.pod_index
        matching = index.required_anti.matching(
            pod.namespace, pod.pod.metadata.labels, namespace_labels, nodes.has_label
        )
        for (key, _), theirs in matching.items():
            _count_in(existing, nodes, key, nodes.count_terms(theirs))
        hostname_terms = hostname_fast_path and any(
            key == LABEL_HOSTNAME
            for one in index.required_anti.counted.values()
            for key, _ in one.terms.columns
        )
        return cls(
            required,
            required_anti,
            namespace_labels,
            affinity,
            anti,
            existing,
            required.all_select(pod.pod),
            matching_anywhere,
            hostname_terms,
        )

    @property
    def first_of_its_kind(self) -> bool:
        """Whether no existing pod matches the affinity terms, but the pod itself does."""
        # Otherwise the first pod of a group that requires affinity to itself would fit nowhere.
        # kube-scheduler looks at the whole cluster here, not at the node's domain.
        if self.matching_anywhere is not None:
            return self.self_affine and self.matching_anywhere <= 0
        return self.self_affine and not any(sums.any for sums in self.affinity.values())

    @property
    def nothing_to_check(self) -> bool:
        """Whether Filter would accept every node."""
        if self.required.terms or self.required_anti.terms or self.hostname_terms:
            return False
        return not any(sums.any for sums in self.existing.values())

    def rejections(self, nodes: NodeTable) -> Iterator[tuple[Status, BoolArray]]:
        """Yield the nodes that Filter rejects, its first reason first."""
        first = self.first_of_its_kind
        for key, sums in self.affinity.items():
            codes = nodes.label(key)
            # Also for the first pod of a group: its node needs the topology keys.
            yield AFFINITY_REJECTED, codes == ABSENT if first else sums.of(codes) <= 0
        for key, sums in self.anti.items():
            yield ANTI_AFFINITY_REJECTED, sums.of(nodes.label(key)) > 0
        for key, sums in self.existing.items():
            yield EXISTING_REJECTED, sums.of(nodes.label(key)) > 0

    def clone(self) -> AffinityCounts:
        """Return a copy for a dry run."""
        return replace(
            self,
            affinity=_forked(self.affinity),
            anti=_forked(self.anti),
            existing=_forked(self.existing),
        )

    def count_pod(
        self, pod: PodInfo, other: PodInfo, node: NodeInfo, step: int, nodes: NodeTable
    ) -> bool:
        """Add (``step`` 1) or remove (-1) another pod on a node; return whether it can count."""
        labels, matters = node.labels, False
        if self.required.all_select(other.pod):
            matters = True
            if self.matching_anywhere is not None:
                self.matching_anywhere += step
            for key, sums in self.affinity.items():
                if key in labels:
                    sums.add(labels[key], step)
        ours, theirs = self.required_anti.terms, affinity_terms(other).required_anti
        covering = theirs.covering(pod.namespace, self.namespace_labels)
        for terms, selecting, counted in (
            (ours, self.required_anti.selecting_pod(other.pod), self.anti),
            (theirs, theirs.selecting(covering, pod.pod.metadata.labels), self.existing),
        ):
            for key, number in () if selecting is None else terms.sums_by_key(selecting):
                matters = True
                if key in labels:
                    # The term may be one that no existing pod had in PreFilter.
                    _sums_in(counted, key, nodes).add(labels[key], step * number)
        return matters


def _sums_in(sums: Sums, key: str, nodes: NodeTable) -> DomainSums:
    if key not in sums:
        sums[key] = DomainSums.empty(nodes.label_values(key))
    return sums[key]


def _count_in(sums: Sums, nodes: NodeTable, key: str, counts: IntArray) -> None:
    sums[key] = DomainSums(nodes.label_values(key), sum_by_domain(nodes, key, counts))


def _forked(sums: Sums) -> Sums:
    return {key: one.fork() for key, one in sums.items()}
