"""The (anti-)affinity terms of existing pods: one entry a distinct term, counted by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proreus.framework.affinity_terms import AffinityTerm
from proreus.framework.anchors import Anchored
from proreus.framework.count_columns import CountColumn, CountColumns


class ExistingTerm:
    """A term that existing pods have.

    ``multiplier``: what one such pod counts: 1, or the weight of a preferred term, negative for
    anti-affinity. ``by_row``: the sum of that by row.
    """

    __slots__ = ("by_row", "column", "multiplier", "pods", "term")

    def __init__(self, term: AffinityTerm, multiplier: int) -> None:
        self.term = term
        self.multiplier = multiplier
        self.pods = 0
        self.by_row: dict[int, int] = {}
        self.column: CountColumn | None = None

    def let_go(self, column: CountColumn) -> None:
        """Keep the column no longer."""
        self.column = None


class ExistingTerms:
    """The terms of one sort, to be found by the pods that they mean."""

    __slots__ = ("_anchored", "_columns", "_terms")

    def __init__(self, columns: CountColumns) -> None:
        self._columns = columns
        self._terms: dict[tuple[int, AffinityTerm], ExistingTerm] = {}
        self._anchored: Anchored[ExistingTerm] = Anchored()

    def __len__(self) -> int:
        return len(self._terms)

    def __iter__(self) -> Iterator[ExistingTerm]:
        return iter(self._terms.values())

    def meaning(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> list[ExistingTerm]:
        """Return the terms that mean a pod with these labels."""
        if not self._terms:
            return []
        return [
            existing
            for existing in self._anchored.candidates(labels)
            if existing.term.matches(namespace, labels, namespace_labels)
        ]

    def add(self, row: int, term: AffinityTerm, multiplier: int = 1) -> None:
        """Count a pod in that has a term."""
        existing = self._terms.get((multiplier, term))
        if existing is None:
            existing = self._terms[multiplier, term] = ExistingTerm(term, multiplier)
            self._anchored.add(term.selector, existing)
        existing.pods += 1
        existing.by_row[row] = existing.by_row.get(row, 0) + multiplier
        if existing.column is not None:
            existing.column.counts[row] += multiplier

    def remove(self, row: int, term: AffinityTerm, multiplier: int = 1) -> None:
        """Count a pod out that has a term."""
        existing = self._terms[multiplier, term]
        existing.pods -= 1
        left = existing.by_row[row] - multiplier
        if left:
            existing.by_row[row] = left
        elif multiplier:
            del existing.by_row[row]
        if existing.column is not None:
            existing.column.counts[row] -= multiplier
        if not existing.pods:
            del self._terms[multiplier, term]
            self._anchored.discard(term.selector, existing)
            self._columns.discard(existing)

    def snapshot(self) -> dict[tuple[int, AffinityTerm], tuple[int, dict[int, int]]]:
        """Return all that is counted, to be compared; a column must agree with it."""
        for existing in self:
            if existing.column is not None:
                counts = existing.column.counts
                assert {r: int(c) for r, c in enumerate(counts) if c} == existing.by_row
        return {key: (one.pods, dict(one.by_row)) for key, one in self._terms.items()}
