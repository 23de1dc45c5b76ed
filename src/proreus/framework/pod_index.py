"""The pods of a table counted by row, for plugins that look across nodes.

Two queries cost the same however many pods there are: how many pods on each node match a selector
(``count``); and which terms of existing pods select this pod (``required_anti.matching`` and the
like) and how many pods on each node have them (``count_terms``). Pods on nodes without a row do not
count.

Example: 100,000 pods, 40 of them with anti-affinity to ``app=db``. For an incoming pod with
``app=db``, ``required_anti.matching`` returns one term, and ``count_terms`` its column: an array
over nodes, above 0 on the nodes of the 40, updated whenever one of them comes or goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from proreus.framework.affinity_terms import affinity_terms
from proreus.framework.count_columns import CountColumns, add_by_row
from proreus.framework.existing_terms import ExistingTerm, ExistingTerms
from proreus.framework.many_terms import (
    Column,
    ManyTerms,
    TermsInNamespaces,
    Weighted,
    negative,
    weighted,
)
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_label_groups import PodLabelGroups, PodQuery
from proreus.framework.verdicts import CodeArray, IntArray

_MANY = 64
"""More terms than this are counted without a column for each."""
_FEW_ROWS = 64
"""A term of pods on no more rows is added up row by row, among many."""


class PodIndex:
    """Counts of the pods on the rows of one table, which reports every change to it.

    ``required_anti`` and ``required``: terms of required (anti-)affinity, each pod counting 1.
    ``preferred``: preferred terms, each pod counting its weight, negative for anti-affinity.
    """

    def __init__(self, infos: Iterable[NodeInfo], capacity: int) -> None:
        self._infos = infos
        self._columns = CountColumns(capacity)
        self._groups: PodLabelGroups | None = None
        self.required_anti = ExistingTerms(self._columns)
        self.required = ExistingTerms(self._columns)
        self.preferred = ExistingTerms(self._columns)
        for info in infos:
            for pod in info.pods_with_affinity.values():
                self._add_terms(info.row, pod)

    def count(self, query: PodQuery) -> CodeArray:
        """Return how many pods match a query, by row; longer than the table, read-only."""
        # Grouping all pods by labels takes a while in a large cluster; one that uses neither
        # spreading nor affinity must not pay for it at every pod event: it begins with a query.
        groups = self._groups or self.group_pods()
        return groups.column(query)

    def count_all(self, queries: Sequence[PodQuery]) -> CodeArray | IntArray:
        """Return how many pods match the queries, added up, by row; as ``count``."""
        return _sum([self.count(query) for query in queries])

    def count_selected(
        self, terms: TermsInNamespaces, has_label: Callable[[str], bool], check: Callable[[], None]
    ) -> dict[Column, IntArray]:
        """Return by row what the pods count that terms select, where it is not 0 everywhere.

        Only of terms whose topology key is a label of nodes. ``check`` is called now and then.
        """
        counted: dict[Column, IntArray] = {}
        with_domains = [
            (number, column)
            for number, column in enumerate(terms.many.columns)
            if has_label(column[0])
        ]
        if not with_domains:
            return counted
        for group, selecting in (self._groups or self.group_pods()).selected_by(terms, check):
            sums = terms.many.sums(selecting)
            for number, column in with_domains:
                if sums[number]:
                    if column not in counted:
                        counted[column] = np.zeros(self._columns.capacity, dtype=np.int64)
                    add_by_row(counted[column], group.by_row, int(sums[number]))
        return counted

    def count_selected_by_all(
        self, terms: TermsInNamespaces, check: Callable[[], None]
    ) -> IntArray:
        """Return how many pods are selected by each of the terms, by row."""
        counts = np.zeros(self._columns.capacity, dtype=np.int64)
        for group, selecting in (self._groups or self.group_pods()).selected_by(terms, check):
            if selecting.all():
                add_by_row(counts, group.by_row)
        return counts

    def group_pods(self) -> PodLabelGroups:
        """Group all pods by their labels, from now on; ``count`` does it at its first call."""
        if self._groups is None:
            self._groups = PodLabelGroups(self._columns)
            for info in self._infos:
                for pod in info.pods.values():
                    self._groups.add(info.row, pod.pod)
        return self._groups

    def count_terms(self, terms: Sequence[ExistingTerm]) -> CodeArray | IntArray:
        """Return the sum of the terms' counts by row; longer than the table, read-only."""
        if len(terms) <= _MANY:
            return _sum([self._count_term(existing) for existing in terms])
        # One pod may have thousands of terms, more than there are columns: each would evict one
        # that another is about to use.
        counts = np.zeros(self._columns.capacity, dtype=np.int64)
        by_row: Counter[int] = Counter()
        for existing in terms:
            if existing.column is None and len(existing.by_row) <= _FEW_ROWS:
                by_row.update(existing.by_row)
            else:
                counts += self._count_term(existing)
        add_by_row(counts, by_row)
        return counts

    def _count_term(self, existing: ExistingTerm) -> CodeArray:
        if not existing.pods:  # a sum that ``ExistingTerms.matching`` has made
            counts = np.zeros(self._columns.capacity, dtype=np.int32)
            add_by_row(counts, existing.by_row)
            return counts
        column = self._columns.get(existing)
        if column is None:
            column = existing.column = self._columns.new(existing, existing.on_evicted)
            column.add_all(existing.by_row)
        return column.counts

    def add(self, row: int, pod: PodInfo) -> None:
        """Add a pod to the counts."""
        if pod.pod.spec.affinity is not None:
            self._add_terms(row, pod)
        if self._groups is not None:
            self._groups.add(row, pod.pod)

    def remove(self, row: int, pod: PodInfo) -> None:
        """Remove a pod from the counts."""
        if pod.pod.spec.affinity is not None:
            self._remove_terms(row, pod)
        if self._groups is not None:
            self._groups.remove(row, pod.pod)

    def update(self, row: int, old: PodInfo, new: PodInfo) -> None:
        """Count the new version of a pod in place of the old one."""
        # A pod may have 30,000 terms, and few updates change any.
        if old.pod.spec.affinity != new.pod.spec.affinity:
            self._remove_terms(row, old)
            self._add_terms(row, new)
        if self._groups is not None:
            self._groups.update(row, old.pod, new.pod)

    def add_row(self, info: NodeInfo) -> None:
        """Add all pods of a node."""
        for pod in info.pods.values():
            self.add(info.row, pod)

    def remove_row(self, info: NodeInfo) -> None:
        """Remove all pods of a node."""
        for pod in info.pods.values():
            self.remove(info.row, pod)

    def grow(self, capacity: int) -> None:
        """Extend the columns to ``capacity`` rows."""
        self._columns.grow(capacity)

    def _add_terms(self, row: int, pod: PodInfo) -> None:
        for existing, terms in self._weighted_terms(pod):
            existing.add_all(row, terms)

    def _remove_terms(self, row: int, pod: PodInfo) -> None:
        # Terms are found by value: the pod may be another version than the one that was added.
        for existing, terms in self._weighted_terms(pod):
            existing.remove_all(row, terms)

    def _weighted_terms(self, pod: PodInfo) -> Iterator[tuple[ExistingTerms, Weighted | ManyTerms]]:
        terms = affinity_terms(pod)
        yield self.required_anti, terms.many_required_anti or weighted(terms.required_anti)
        yield self.required, terms.many_required or weighted(terms.required)
        yield self.preferred, terms.many_preferred or terms.preferred
        # One collection for both: InterPodAffinity sums the weights of all matching terms anyway,
        # with those of anti-affinity negative.
        yield self.preferred, terms.many_preferred_anti or negative(terms.preferred_anti)

    def row_differs(self, info: NodeInfo) -> bool:
        """Return whether a count of a row does not follow from the pods on it."""
        row = info.row
        fresh = PodIndex((info,), self._columns.capacity)
        kinds = ("required_anti", "required", "preferred")
        if any(getattr(self, kind).row_differs(row, getattr(fresh, kind)) for kind in kinds):
            return True
        if self._groups is None:
            return False
        columns = (column for key, column in self._columns.items() if isinstance(key, PodQuery))
        return self._groups.row_differs(row, (pod.pod for pod in info.pods.values()), columns)

    def validate(self) -> None:
        """Derive all counts anew and raise ``AssertionError`` if one differs."""
        fresh = PodIndex(self._infos, self._columns.capacity)
        for kept, derived in (
            (self.required_anti, fresh.required_anti),
            (self.required, fresh.required),
            (self.preferred, fresh.preferred),
        ):
            assert kept.snapshot() == derived.snapshot()
        for key, column in self._columns.items():
            if isinstance(key, PodQuery):
                assert np.array_equal(column.counts, fresh.count(key)), key


def _sum(columns: Sequence[CodeArray]) -> CodeArray | IntArray:
    """Return the sum of at least one column; one alone as it is."""
    first, *others = columns
    return sum(others, first.astype(np.int64)) if others else first
