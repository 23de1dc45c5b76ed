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

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from proreus.framework.affinity_terms import affinity_terms
from proreus.framework.count_columns import CountColumn, CountColumns, add_by_row
from proreus.framework.existing_terms import CountedTerms, ExistingTerms, WeightedCounts
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_label_groups import PodLabelGroups, PodQuery, Query
from proreus.framework.term_set import Column, TermCount, TermSet, TermsInNamespaces
from proreus.framework.verdicts import IntArray

_MOST_SPARSE_ROWS = 64
"""Counts of more rows get a column: to add so many one by one costs more than to add a column."""


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

    def count(self, query: PodQuery) -> IntArray:
        """Return the number of pods by row that match a query; longer than the table, read-only."""
        return self.group_pods().columns((query,))[0]

    def count_selected(
        self, terms: TermsInNamespaces, has_label: Callable[[str], bool], check: Callable[[], None]
    ) -> Iterator[tuple[Column, IntArray]]:
        """Yield, for each of the terms' columns, the counts by row of the pods that they select.

        Only of those whose topology key is a label of nodes. ``check`` is called now and then.
        """
        queries = [
            (column, TermCount(terms, number))
            for number, column in enumerate(terms.terms.columns)
            if has_label(column[0])
        ]
        groups, limit = self.group_pods(), self._columns.limit
        for first in range(0, len(queries), limit):
            columns, some = zip(*queries[first : first + limit], strict=True)
            yield from zip(columns, groups.columns(some, check), strict=True)

    def count_selected_by_all(
        self, terms: TermsInNamespaces, check: Callable[[], None]
    ) -> IntArray:
        """Return the number of pods by row that all of the terms select."""
        return self.group_pods().columns((TermCount(terms, None),), check)[0]

    def group_pods(self) -> PodLabelGroups:
        """Return all pods grouped by their labels, from now on."""
        # Grouping takes a while in a large cluster; one that uses neither spreading nor affinity
        # must not pay for it at every pod event: it begins with a query.
        if self._groups is None:
            self._groups = PodLabelGroups(self._columns)
            for info in self._infos:
                for pod in info.pods.values():
                    self._groups.add(info.row, pod.pod)
        return self._groups

    def count_terms(self, terms: WeightedCounts) -> IntArray:
        """Return the sum of the terms' counts by row; longer than the table, read-only."""
        (first, weight), *others = terms
        if not others:
            counts = self._column_of(first).counts
            return counts if weight == 1 else counts * weight
        counts = np.zeros(self._columns.capacity, dtype=np.int64)
        # One by one, terms of thousands of pods, each on its node, would need more columns than
        # there are: each would evict one that another is about to use.
        sparse: dict[int, int] = {}
        for counted, weight in terms:
            if len(counted.by_row) > _MOST_SPARSE_ROWS:
                counts += self._column_of(counted).counts * weight
                continue
            for row, number in counted.by_row.items():
                sparse[row] = sparse.get(row, 0) + number * weight
        add_by_row(counts, sparse)
        return counts

    def _column_of(self, counted: CountedTerms) -> CountColumn:
        column = self._columns.get(counted)
        if column is None:
            column = counted.column = self._columns.new(counted, counted.on_evicted)
            column.add_all(counted.by_row)
        return column

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
        for existing, terms in self._terms_by_kind(pod):
            existing.add(row, terms)

    def _remove_terms(self, row: int, pod: PodInfo) -> None:
        # Terms are found by value: the pod may be another version than the one that was added.
        for existing, terms in self._terms_by_kind(pod):
            existing.remove(row, terms)

    def _terms_by_kind(self, pod: PodInfo) -> Iterator[tuple[ExistingTerms, TermSet]]:
        terms = affinity_terms(pod)
        for existing, own in (
            (self.required_anti, terms.required_anti),
            (self.required, terms.required),
            # One collection for both: InterPodAffinity sums the weights of all matching terms
            # anyway, with those of anti-affinity negative.
            (self.preferred, terms.preferred),
            (self.preferred, terms.preferred_anti),
        ):
            if own:
                yield existing, own

    def row_differs(self, info: NodeInfo) -> bool:
        """Return whether a count of a row does not follow from the pods on it."""
        row = info.row
        fresh = PodIndex((info,), self._columns.capacity)
        kinds = ("required_anti", "required", "preferred")
        if any(getattr(self, kind).row_differs(row, getattr(fresh, kind)) for kind in kinds):
            return True
        if self._groups is None:
            return False
        columns = (column for key, column in self._columns.items() if isinstance(key, Query))
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
            if isinstance(key, Query):
                assert np.array_equal(column.counts, fresh.group_pods().columns((key,))[0]), key
