"""The nodes that count for a constraint, and their domains.

That depends on nodes, and on the node affinity and tolerations of the incoming pod, but not on
running pods. It is cached by these until a node changes.

Worked example: zones ``a``, ``a``, ``b`` of three nodes have the codes 0, 0 and 1. The third has a
taint that the pod does not tolerate, and the constraint honours taints: ``slots`` is ``[0, 0, 2]``
(2, the number of codes, is outside) and ``known`` is ``[0]``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from proreus.base.bounded_cache import BYTES_AN_ENTRY, BoundedCache, approximate_size
from proreus.framework.interning import ABSENT, Interner, once_per_value
from proreus.framework.node_affinity import PodNodeAffinity, node_affinity
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.tolerations import toleration_index
from proreus.framework.verdicts import BoolArray, CodeArray, IntArray, Rows
from proreus.objects.taints import Taint, TolerationIndex
from proreus.plugins.pod_topology_spread.constraints import SpreadConstraint


class TopologyDomains(Struct, frozen=True):
    """The domains of one constraint.

    ``slots``: by row, the code of the domain that a node's pods count for; the number of codes if
    they do not count. ``known``: codes of the domains with at least one node that counts.
    ``counted``: how many domains count towards minDomains.
    """

    slots: CodeArray
    codes: int
    known: Rows
    counted: int
    values: Interner[str]
    """The label values of codes; held here, so that codes keep their meaning (``LabelColumns``)."""

    def sums(self, counts: IntArray) -> IntArray:
        """Return the sum of a column by code; at the end a 0 for nodes without the label."""
        # A pod may have thousands of constraints that select no pod.
        if not counts.any():
            return np.zeros(self.codes + 1, dtype=np.int64)
        sums = np.bincount(self.slots, weights=counts, minlength=self.codes + 1).astype(np.int64)
        sums[-1] = 0
        return sums


class TopologyDomainCache:
    """The domains of constraints, by the node affinity and tolerations of the incoming pod.

    ``cluster``: the table whose domains are cached; those of other tables are computed each time.
    ``counts_tainted``: see ``KnownFault.TAINTED_ZONE_MIN_DOMAINS``.
    """

    def __init__(
        self, cluster: NodeTable, compare_numbers: bool, *, counts_tainted: bool = False
    ) -> None:
        self._counts_tainted = counts_tainted
        self._cluster = cluster
        self._compare_numbers = compare_numbers
        self._cache: BoundedCache[object, tuple[int, list[TopologyDomains]]] = BoundedCache(
            32 * 2**20
        )

    def of(
        self,
        constraints: Sequence[SpreadConstraint],
        pod: PodInfo,
        nodes: NodeTable,
        all_keys: bool,
    ) -> list[TopologyDomains]:
        """Return the domains of each constraint.

        ``all_keys``: only nodes that carry the topology keys of all constraints count.
        """
        affinity, tolerations = node_affinity(pod), toleration_index(pod)
        if nodes is not self._cluster:
            return self._compute_domains(constraints, affinity, tolerations, nodes, all_keys)
        # Affinity and tolerations that no policy honours are not in the key: more pods share it.
        key = (
            tuple((c.topology_key, c.honor_affinity, c.honor_taints) for c in constraints),
            affinity if any(c.honor_affinity for c in constraints) else None,
            tolerations if any(c.honor_taints for c in constraints) else None,
            all_keys,
        )
        cached = self._cache.get(key)
        if cached is not None and cached[0] == nodes.nodes_generation:
            return cached[1]
        domains = self._compute_domains(constraints, affinity, tolerations, nodes, all_keys)
        distinct = {id(one): one for one in domains}.values()
        size_bytes = sum(one.slots.nbytes + one.known.nbytes for one in distinct)
        self._cache.put(
            key,
            (nodes.nodes_generation, domains),
            BYTES_AN_ENTRY + size_bytes + approximate_size(key),
        )
        return domains

    def accepts(self, constraint: SpreadConstraint, pod: PodInfo, node: NodeInfo) -> bool:
        """Return whether a node counts by the policies of a constraint."""
        if constraint.honor_affinity and not node_affinity(pod).matches(node.labels, node.name):
            return False
        return (
            not constraint.honor_taints
            or not node.taints
            or self._tolerates(node.taints, toleration_index(pod))
        )

    def _compute_domains(
        self,
        constraints: Sequence[SpreadConstraint],
        affinity: PodNodeAffinity,
        tolerations: TolerationIndex,
        nodes: NodeTable,
        all_keys: bool,
    ) -> list[TopologyDomains]:
        # A node that lacks one of the keys counts for no constraint, also not for those it has.
        complete = np.ones(len(nodes), dtype=np.bool_)
        if all_keys:
            keys = {constraint.topology_key for constraint in constraints}
            if not all(map(nodes.has_label, keys)):
                complete[:] = False
            else:
                for key in keys:
                    complete &= nodes.label(key) != ABSENT
        matching = (
            affinity.matches_all(nodes) if any(c.honor_affinity for c in constraints) else None
        )
        tainted = None
        if any(c.honor_taints for c in constraints):
            tainted = once_per_value(
                nodes.taint_set,
                nodes.taint_sets.values,
                lambda taints: not self._tolerates(taints, tolerations),
            )
        # A pod may name thousands of keys that no node has; their domains are all the same.
        computed: dict[tuple[str | None, bool, bool], TopologyDomains] = {}
        domains = []
        for constraint in constraints:
            key = constraint.topology_key
            present = key if nodes.has_label(key) else None
            what = present, constraint.honor_affinity, constraint.honor_taints
            one = computed.get(what)
            if one is None:
                counted = complete
                if constraint.honor_affinity and matching is not None:
                    counted = counted & matching
                existing = counted
                if constraint.honor_taints and tainted is not None:
                    counted = counted & ~tainted
                one = _domains_of(nodes, key, counted)
                if self._counts_tainted and existing is not counted:
                    one = replace(one, counted=_domains_of(nodes, key, existing).counted)
                computed[what] = one
            domains.append(one)
        return domains

    def _tolerates(self, taints: tuple[Taint, ...], tolerations: TolerationIndex) -> bool:
        compare = self._compare_numbers
        return tolerations.first_untolerated(taints, compare_numbers=compare) is None


def _domains_of(nodes: NodeTable, key: str, counted: BoolArray) -> TopologyDomains:
    codes, values = nodes.label(key), nodes.label_values(key)
    outside = len(values)
    # A node without the label counts for the domain of the empty value, where there is one.
    absent = values.find("")
    absent = outside if absent == ABSENT else absent
    slots = np.where(counted, np.where(codes == ABSENT, absent, codes), outside).astype(np.int32)
    # A domain without pods is known too, as soon as one node counts: it lowers the minimum to 0.
    known = np.flatnonzero(np.bincount(slots, minlength=outside + 1)[:outside])
    return TopologyDomains(slots, outside, known, len(known), values)
