"""Counts of existing pods by topology domain: cycle state for Filter.

PreFilter computes them from columns; AddPod and RemovePod update them in a dry run.

Worked example: the pod requires zone affinity to ``app=db``; zones ``a`` and ``b`` run 2 and 0 such
pods. ``affinity["topology.kubernetes.io/zone"]`` is 2 and 0, so that Filter rejects zone ``b``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proreus.framework.affinity_terms import affinity_terms
from proreus.framework.attempt_budget import AttemptBudget
from proreus.framework.domains import DomainSums, sum_by_domain
from proreus.framework.existing_terms import by_topology_key
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import CodeArray, IntArray
from proreus.objects.node import LABEL_HOSTNAME
from proreus.objects.pod import Pod
from proreus.plugins.inter_pod_affinity.incoming import IncomingTerms

Sums = dict[str, DomainSums]
"""Counts by topology key and domain."""


class AffinityCounts:
    """The counts for one incoming pod.

    ``affinity``: existing pods that match all required affinity terms, by each of their keys.
    ``anti``: existing pods that match a required anti-affinity term of the pod. ``existing``:
    existing pods with a required anti-affinity term that matches the pod. ``self_affine``: the pod
    matches all its own affinity terms.

    With gate InterPodAffinityHostnameFastPath, ``matching_anywhere``: existing pods that match all
    required affinity terms, on nodes without the hostname label as well, where all terms are about
    the hostname; else None. ``hostname_terms``: an existing pod has a required anti-affinity term
    about the hostname.
    """

    __slots__ = (
        "affinity",
        "anti",
        "existing",
        "hostname_terms",
        "matching_anywhere",
        "namespace_labels",
        "self_affine",
        "terms",
    )

    def __init__(
        self,
        terms: IncomingTerms,
        namespace_labels: Mapping[str, str],
        affinity: Sums,
        anti: Sums,
        existing: Sums,
        self_affine: bool,
        matching_anywhere: int | None = None,
        hostname_terms: bool = False,
    ) -> None:
        self.terms = terms
        self.namespace_labels = namespace_labels
        self.affinity = affinity
        self.anti = anti
        self.existing = existing
        self.self_affine = self_affine
        self.matching_anywhere = matching_anywhere
        self.hostname_terms = hostname_terms

    @classmethod
    def from_nodes(
        cls,
        terms: IncomingTerms,
        pod: PodInfo,
        namespace_labels: Mapping[str, str],
        nodes: NodeTable,
        budget: AttemptBudget | None = None,
        hostname_fast_path: bool = False,
    ) -> AffinityCounts:
        """Count the pods on all nodes for a pod; raises ``BudgetExceeded``."""
        matching_anywhere = None

        def check() -> None:
            if budget is not None:
                budget.check("InterPodAffinity", "PreFilter")

        affinity: Sums = {}
        if terms.required_keys:
            counts = _count_required(terms, nodes, check)
            if hostname_fast_path and terms.required_keys == (LABEL_HOSTNAME,):
                matching_anywhere = int(counts.sum())
            # A key that no node has rejects all nodes, whatever the others count.
            missing = next((k for k in terms.required_keys if not nodes.has_label(k)), None)
            for key in terms.required_keys if missing is None else (missing,):
                affinity[key] = DomainSums(
                    nodes.label_values(key), sum_by_domain(nodes, key, counts)
                )
        anti: Sums = {}
        for key, queries in terms.required_anti.items():
            # Without the key no node is in a domain, and no pod of a dry run either.
            if nodes.has_label(key):
                _count_in(anti, nodes, key, nodes.count_pods_of_all(queries))
        if terms.many_required_anti is not None:
            for (key, _), counted in nodes.count_selected(terms.many_required_anti, check).items():
                _count_in(anti, nodes, key, counted)
        existing: Sums = {}
        index = nodes.pod_index
        matching = index.required_anti.matching(
            pod.namespace, pod.pod.metadata.labels, namespace_labels, nodes.has_label
        )
        for (key, _), theirs in by_topology_key(matching).items():
            _count_in(existing, nodes, key, nodes.count_terms(theirs))
        self_affine = bool(terms.required_keys) and selects_by_all_required(terms, pod.pod)
        hostname_terms = hostname_fast_path and any(
            key == LABEL_HOSTNAME for key in index.required_anti.topology_keys()
        )
        return cls(
            terms,
            namespace_labels,
            affinity,
            anti,
            existing,
            self_affine,
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
        terms = self.terms
        if terms.required_keys or terms.required_anti or self.hostname_terms:
            return False
        if terms.many_required_anti is not None:
            return False
        return not any(sums.any for sums in self.existing.values())

    def clone(self) -> AffinityCounts:
        """Return a copy for a dry run."""
        return AffinityCounts(
            self.terms,
            self.namespace_labels,
            _forked(self.affinity),
            _forked(self.anti),
            _forked(self.existing),
            self.self_affine,
            self.matching_anywhere,
            self.hostname_terms,
        )

    def count_pod(
        self, pod: PodInfo, other: PodInfo, node: NodeInfo, step: int, nodes: NodeTable
    ) -> bool:
        """Add (``step`` 1) or remove (-1) another pod on a node; return whether it can count."""
        labels, terms, matters = node.labels, self.terms, False
        if terms.required_keys and selects_by_all_required(terms, other.pod):
            matters = True
            if self.matching_anywhere is not None:
                self.matching_anywhere += step
            for key, sums in self.affinity.items():
                if key in labels:
                    sums.add(labels[key], step)
        for key, queries in terms.required_anti.items():
            times = sum(query.selects_pod(other.pod) for query in queries)
            if times:
                matters = True
                if key in labels:
                    self.anti[key].add(labels[key], step * times)
        many = terms.many_required_anti
        selecting = None if many is None else many.selecting_pod(other.pod)
        if many is not None and selecting is not None:
            matters = True
            sums = many.many.sums(selecting).tolist()
            for (key, _), number in zip(many.many.columns, sums, strict=True):
                if number and key in labels:
                    _sums_in(self.anti, key, nodes).add(labels[key], step * number)
        for theirs in affinity_terms(other).required_anti:
            if theirs.matches(pod.namespace, pod.pod.metadata.labels, self.namespace_labels):
                matters = True
                key = theirs.topology_key
                if key in labels:
                    # The term may be one that no existing pod had in PreFilter.
                    _sums_in(self.existing, key, nodes).add(labels[key], step)
        return matters


def _count_required(
    terms: IncomingTerms, nodes: NodeTable, check: Callable[[], None]
) -> CodeArray | IntArray:
    """Return how many pods on each node match all required affinity terms."""
    if terms.many_required is not None:
        return nodes.count_selected_by_all(terms.many_required, check)
    assert terms.all_required is not None
    # One query: an existing pod counts for affinity only if it matches all the terms.
    return nodes.count_pods(terms.all_required)


def selects_by_all_required(terms: IncomingTerms, pod: Pod) -> bool:
    """Return whether a pod matches all required affinity terms, of which there is one at least."""
    if terms.many_required is not None:
        selecting = terms.many_required.selecting_pod(pod)
        return selecting is not None and bool(selecting.all())
    return terms.all_required is not None and terms.all_required.selects_pod(pod)


def _sums_in(sums: Sums, key: str, nodes: NodeTable) -> DomainSums:
    if key not in sums:
        sums[key] = DomainSums.empty(nodes.label_values(key))
    return sums[key]


def _count_in(sums: Sums, nodes: NodeTable, key: str, counts: CodeArray | IntArray) -> None:
    known = sums.get(key)
    if known is None:
        by_code = sum_by_domain(nodes, key, counts)
        sums[key] = DomainSums(nodes.label_values(key), by_code)
    elif counts.any():
        known.by_code += sum_by_domain(nodes, key, counts)


def _forked(sums: Sums) -> Sums:
    return {key: one.fork() for key, one in sums.items()}
