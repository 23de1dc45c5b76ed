"""The inter-pod (anti-)affinity terms of all existing pods, counted by row.

Example: 300 pods with anti-affinity to ``app=web`` are one ``CountedTerms`` with ``by_row``
{0: 1, 1: 1, …}. An incoming pod with ``app=web`` finds it by its label and gets the column of
counts, instead of looking at 300 pods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from proreus.framework.count_columns import CountColumn, CountColumns
from proreus.framework.selector_index import SelectorIndex
from proreus.framework.term_set import Column, TermSet


class CountedTerms:
    """Terms of existing pods. ``by_row``: the number of pods that have them, by row."""

    __slots__ = ("by_row", "column", "terms")

    def __init__(self, terms: TermSet) -> None:
        self.terms = terms
        self.by_row: dict[int, int] = {}
        self.column: CountColumn | None = None

    def on_evicted(self, column: CountColumn) -> None:
        """Drop the column: ``CountColumns`` has evicted it."""
        self.column = None


WeightedCounts = list[tuple[CountedTerms, int]]
"""Terms, each with the count of a pod that has them: the sum of the weights that select."""


class ExistingTerms:
    """The existing terms of one kind, indexed by the labels of the pods that they select.

    ``counted``: all of them.
    """

    __slots__ = ("_columns", "_index", "counted")

    def __init__(self, columns: CountColumns) -> None:
        self._columns = columns
        self.counted: dict[TermSet, CountedTerms] = {}
        self._index: SelectorIndex[CountedTerms] = SelectorIndex()

    def matching(
        self,
        namespace: str,
        labels: Mapping[str, str],
        namespace_labels: Mapping[str, str],
        has_label: Callable[[str], bool],
    ) -> dict[Column, WeightedCounts]:
        """Return the terms that select a pod with these labels and have domains.

        ``has_label``: whether a node has a label, see ``NodeTable.has_label``.
        """
        found: dict[Column, WeightedCounts] = {}
        for counted in self._index.candidates(labels):
            # One pod may bring thousands of terms about keys that no node has, and all other pods
            # would be matched against them.
            terms = counted.terms
            columns = [has_label(key) for key, _ in terms.columns]
            if True not in columns:
                continue
            selecting = terms.selecting(terms.covering(namespace, namespace_labels), labels)
            if selecting is None:
                continue
            sums = zip(terms.columns, columns, terms.sums(selecting), strict=True)
            for column, has_domains, weight in sums:
                if has_domains and weight:
                    found.setdefault(column, []).append((counted, weight))
        return found

    def add(self, row: int, terms: TermSet) -> None:
        """Count a pod that has these terms."""
        counted = self.counted.get(terms)
        if counted is None:
            counted = self.counted[terms] = CountedTerms(terms)
            self._index.add(terms.needs, counted)
        # The sparse count is the truth; the column, if there is one, is updated in the same step,
        # so that it never has to be filled again while it is in use.
        counted.by_row[row] = counted.by_row.get(row, 0) + 1
        if counted.column is not None:
            counted.column.counts[row] += 1

    def remove(self, row: int, terms: TermSet) -> None:
        """Remove a pod that has these terms from the counts."""
        counted = self.counted[terms]
        # Entries of rows without such pods must go, or ``by_row`` would grow with every node that
        # ever had one.
        if counted.by_row[row] > 1:
            counted.by_row[row] -= 1
        else:
            del counted.by_row[row]
        if counted.column is not None:
            counted.column.counts[row] -= 1
        if not counted.by_row:
            del self.counted[terms]
            self._index.discard(counted.terms.needs, counted)
            self._columns.discard(counted)
            # Terms and column refer to each other. The garbage collector, which would have to find
            # that, hardly ever runs in a scheduler (``gc_tuning``).
            counted.column = None

    def row_differs(self, row: int, derived: ExistingTerms) -> bool:
        """Return whether a count of a row differs; ``derived`` has the terms of that row alone."""
        for terms, expected in derived.counted.items():
            counted = self.counted.get(terms)
            if counted is None or counted.by_row.get(row) != expected.by_row.get(row):
                return True
        return any(
            counted.column is not None and counted.column.counts[row] != counted.by_row.get(row, 0)
            for counted in self.counted.values()
        )

    def snapshot(self) -> dict[Hashable, dict[int, int]]:
        """Return all counts for comparison; asserts that the columns agree with them."""
        for counted in self.counted.values():
            if counted.column is not None:
                counts = counted.column.counts
                assert {r: int(c) for r, c in enumerate(counts) if c} == counted.by_row
        return {terms: dict(counted.by_row) for terms, counted in self.counted.items()}
