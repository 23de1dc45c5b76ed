"""The inter-pod (anti-)affinity terms of all existing pods, counted by row.

Example: 300 pods with anti-affinity to ``app=web`` are one ``ExistingTerm`` with ``pods`` 300 and
``by_row`` {0: 1, 1: 1, …}. An incoming pod with ``app=web`` finds it by its label and gets the
column of counts, instead of looking at 300 pods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from proreus.base.bounded_cache import register, shrunk
from proreus.framework.affinity_terms import AffinityTerm
from proreus.framework.count_columns import CountColumn, CountColumns
from proreus.framework.many_terms import ManyTerms, Weighted
from proreus.framework.selector_index import SelectorIndex, excludes
from proreus.objects.selectors import Selector


class ExistingTerm:
    """A term of existing pods, with the number of pods that have it.

    ``multiplier``: what one such pod counts: 1, or the weight of a preferred term, negative for
    anti-affinity. ``by_row``: the sum of these counts by row. ``scope``: with which other terms it
    is added up if it selects almost all pods; else None.
    """

    __slots__ = ("by_row", "column", "multiplier", "pods", "scope", "term")

    def __init__(self, term: AffinityTerm, multiplier: int) -> None:
        self.term = term
        self.multiplier = multiplier
        self.pods = 0
        self.scope = _scope_of(term, multiplier) if excludes(term.selector) else None
        self.by_row: dict[int, int] = {}
        self.column: CountColumn | None = None

    def on_evicted(self, column: CountColumn) -> None:
        """Drop the column: ``CountColumns`` has evicted it."""
        self.column = None


_Scope = tuple[frozenset[str], Selector, str, bool]
"""Namespaces, their selector, topology key, and whether the multiplier is negative."""
_MANY_EXCLUDING = 64
"""More terms of one scope than this are added up, rather than returned one by one."""


def _scope_of(term: AffinityTerm, multiplier: int) -> _Scope:
    return term.namespaces, term.namespace_selector, term.topology_key, multiplier < 0


class _ExcludingTerms:
    """Existing terms that select all pods but those with certain labels, added up by row.

    All have the same namespaces and topology key, and multipliers of one sign: ``like`` is one of
    them.
    """

    __slots__ = ("_by_row", "_excluded_by", "like", "terms")

    def __init__(self, like: ExistingTerm) -> None:
        self.like = like
        self.terms: dict[ExistingTerm, None] = {}
        self._by_row: dict[int, int] = {}
        self._excluded_by: dict[tuple[str, str | None], dict[ExistingTerm, None]] = {}
        """The terms that do not select pods with a label, or with a label key (value None)."""

    def add(self, existing: ExistingTerm) -> None:
        """Add a term."""
        self.terms[existing] = None
        for label in _excluded_labels(existing):
            self._excluded_by.setdefault(label, {})[existing] = None

    def discard(self, existing: ExistingTerm) -> None:
        """Remove a term, which no pod has any more."""
        del self.terms[existing]
        for label in _excluded_labels(existing):
            excluded = self._excluded_by[label]
            del excluded[existing]
            if not excluded:
                del self._excluded_by[label]

    def count(self, row: int, step: int) -> None:
        """Add ``step`` to the sum of a row."""
        left = self._by_row.get(row, 0) + step
        if left:
            self._by_row[row] = left
        else:
            self._by_row.pop(row, None)  # none is there if a weight is 0

    def selecting(self, labels: Mapping[str, str]) -> ExistingTerm:
        """Return the terms that select a pod with these labels, added up as one term."""
        excluded: dict[ExistingTerm, None] = {}
        for key, value in labels.items():
            excluded.update(self._excluded_by.get((key, None), {}))
            excluded.update(self._excluded_by.get((key, value), {}))
        total = ExistingTerm(self.like.term, self.like.multiplier)
        total.by_row = self._by_row.copy()
        for existing in excluded:
            for row, count in existing.by_row.items():
                total.by_row[row] -= count
        return total


_ANY_VALUE = (None,)


def _excluded_labels(existing: ExistingTerm) -> set[tuple[str, str | None]]:
    """Return the labels, or keys (with None), of pods that a term does not select."""
    return {
        (requirement.key, value)
        for requirement in existing.term.selector.requirements
        for value in requirement.values or _ANY_VALUE
    }


class _ManyExistingTerms:
    """The terms of existing pods that have thousands of them, all the same."""

    __slots__ = ("_by_row", "_like", "_many", "pods")

    def __init__(self, many: ManyTerms) -> None:
        self._many = many
        # Of the terms of a column any one: all have its topology key and sign.
        self._like = {(term.topology_key, weight < 0): term for weight, term in many.weighted}
        self._by_row: dict[int, int] = {}
        self.pods = 0

    def count(self, row: int, step: int) -> None:
        """Add a pod on a row, or (-1) remove one."""
        self.pods += step
        self._by_row[row] = self._by_row.get(row, 0) + step
        if not self._by_row[row]:
            del self._by_row[row]

    @property
    def by_row(self) -> Mapping[int, int]:
        """The number of pods by row."""
        return self._by_row

    def topology_keys(self) -> Iterator[str]:
        """Yield the topology keys, some of them twice."""
        return (key for key, _ in self._like)

    def selecting(
        self,
        namespace: str,
        labels: Mapping[str, str],
        namespace_labels: Mapping[str, str],
        has_label: Callable[[str], bool],
    ) -> Iterator[ExistingTerm]:
        """Yield the terms that select a pod with these labels, added up by topology key."""
        covering = self._many.covering(namespace, namespace_labels)
        selecting = None if covering is None else self._many.selecting(covering, labels)
        if selecting is None:
            return
        sums = self._many.sums(selecting).tolist()
        for (key, negative), weight in zip(self._many.columns, sums, strict=True):
            if weight and has_label(key):
                total = ExistingTerm(self._like[key, negative], weight)
                total.by_row = {row: weight * pods for row, pods in self._by_row.items()}
                yield total


def by_topology_key(terms: Iterable[ExistingTerm]) -> dict[tuple[str, bool], list[ExistingTerm]]:
    """Return terms by topology key, those with a negative multiplier apart (True).

    So a sum over a list is 0 only where no pod adds anything.
    """
    found: dict[tuple[str, bool], list[ExistingTerm]] = {}
    for existing in terms:
        found.setdefault((existing.term.topology_key, existing.multiplier < 0), []).append(existing)
    return found


class ExistingTerms:
    """The existing terms of one kind, indexed by the labels of the pods that they select."""

    __slots__ = ("__weakref__", "_columns", "_excluding", "_index", "_many", "_terms")

    def __init__(self, columns: CountColumns) -> None:
        self._columns = columns
        self._terms: dict[tuple[int, AffinityTerm], ExistingTerm] = {}
        self._index: SelectorIndex[ExistingTerm] = SelectorIndex()
        self._excluding: dict[_Scope, _ExcludingTerms] = {}
        self._many: dict[ManyTerms, _ManyExistingTerms] = {}
        register(self)

    def __len__(self) -> int:
        return len(self._terms) + len(self._many)

    def __iter__(self) -> Iterator[ExistingTerm]:
        return iter(self._terms.values())

    def matching(
        self,
        namespace: str,
        labels: Mapping[str, str],
        namespace_labels: Mapping[str, str],
        has_label: Callable[[str], bool],
    ) -> list[ExistingTerm]:
        """Return the terms that select a pod with these labels and have domains.

        Of thousands that select almost all pods, with one topology key, the sum is returned as one
        term. ``has_label``: whether a node has a label, see ``NodeTable.has_label``.
        """
        if not self._terms:
            return self._matching_many(namespace, labels, namespace_labels, has_label)
        # One pod may bring thousands of terms about keys that no node has, and all other pods
        # would be matched against them.
        found = [
            existing
            for existing in self._index.candidates(labels)
            if has_label(existing.term.topology_key)
            and existing.term.matches(namespace, labels, namespace_labels)
        ]
        for excluding in self._excluding.values():
            like = excluding.like.term
            if not has_label(like.topology_key) or not like.covers(namespace, namespace_labels):
                continue
            if len(excluding.terms) > _MANY_EXCLUDING:
                found.append(excluding.selecting(labels))
            else:
                found += [one for one in excluding.terms if one.term.selector.matches(labels)]
        return found + self._matching_many(namespace, labels, namespace_labels, has_label)

    def _matching_many(
        self,
        namespace: str,
        labels: Mapping[str, str],
        namespace_labels: Mapping[str, str],
        has_label: Callable[[str], bool],
    ) -> list[ExistingTerm]:
        return [
            existing
            for many in self._many.values()
            for existing in many.selecting(namespace, labels, namespace_labels, has_label)
        ]

    def topology_keys(self) -> Iterator[str]:
        """Yield the topology keys of all terms, some of them several times."""
        yield from (existing.term.topology_key for existing in self)
        for many in self._many.values():
            yield from many.topology_keys()

    def add_all(self, row: int, terms: Weighted | ManyTerms) -> None:
        """Count a pod that has these terms."""
        if not isinstance(terms, ManyTerms):
            for multiplier, term in terms:
                self.add(row, term, multiplier)
            return
        many = self._many.get(terms)
        if many is None:
            many = self._many[terms] = _ManyExistingTerms(terms)
        many.count(row, 1)

    def remove_all(self, row: int, terms: Weighted | ManyTerms) -> None:
        """Remove a pod that has these terms from the counts."""
        if not isinstance(terms, ManyTerms):
            for multiplier, term in terms:
                self.remove(row, term, multiplier)
            return
        many = self._many[terms]
        many.count(row, -1)
        if not many.pods:
            del self._many[terms]

    def add(self, row: int, term: AffinityTerm, multiplier: int = 1) -> None:
        """Count a pod that has the term."""
        key = multiplier, term
        existing = self._terms.get(key)
        new = existing is None
        if existing is None:
            existing = self._terms[key] = ExistingTerm(term, multiplier)
        if existing.scope is not None:
            excluding = self._excluding.get(existing.scope)
            if excluding is None:
                excluding = self._excluding[existing.scope] = _ExcludingTerms(existing)
            if new:
                excluding.add(existing)
            excluding.count(row, multiplier)
        elif new:
            self._index.add(term.selector, existing)
        # The sparse count is the truth; the column, if there is one, is updated in the same step,
        # so that it never has to be filled again while it is in use.
        existing.pods += 1
        existing.by_row[row] = existing.by_row.get(row, 0) + multiplier
        if existing.column is not None:
            existing.column.counts[row] += multiplier

    def remove(self, row: int, term: AffinityTerm, multiplier: int = 1) -> None:
        """Remove a pod that has the term from the counts."""
        existing = self._terms[multiplier, term]
        existing.pods -= 1
        scope = existing.scope
        if scope is not None:
            self._excluding[scope].count(row, -multiplier)
        left = existing.by_row[row] - multiplier
        # Entries of rows without such pods must go, or ``by_row`` would grow with every node that
        # ever had one. With a multiplier of 0 a sum of 0 does not say that no pod is left.
        if left:
            existing.by_row[row] = left
        elif multiplier:
            del existing.by_row[row]
        if existing.column is not None:
            existing.column.counts[row] -= multiplier
        # By pods, not by the sum: a term of weight 0 is still a term of a pod.
        if not existing.pods:
            del self._terms[multiplier, term]
            if scope is None:
                self._index.discard(term.selector, existing)
            else:
                self._excluding[scope].discard(existing)
                if not self._excluding[scope].terms:
                    del self._excluding[scope]
            self._columns.discard(existing)
            # Term and column refer to each other. The garbage collector, which would have to find
            # that, hardly ever runs in a scheduler (``gc_tuning``).
            existing.column = None

    def row_differs(self, row: int, derived: ExistingTerms) -> bool:
        """Return whether a count of a row differs; ``derived`` has the terms of that row alone."""
        for key, expected in derived._terms.items():
            existing = self._terms.get(key)
            if existing is None or existing.by_row.get(row, 0) != expected.by_row.get(row, 0):
                return True
        for terms, derived_many in derived._many.items():
            many = self._many.get(terms)
            if many is None or many.by_row.get(row) != derived_many.by_row.get(row):
                return True
        return any(
            existing.column is not None
            and existing.column.counts[row] != existing.by_row.get(row, 0)
            for existing in self
        )

    def age(self) -> None:
        """Give back the memory of terms that no pod has any more."""
        self._terms = shrunk(self._terms)

    def snapshot(self) -> dict[Hashable, tuple[int, dict[int, int]]]:
        """Return all counts for comparison; asserts that the columns agree with them."""
        for existing in self:
            if existing.column is not None:
                counts = existing.column.counts
                assert {r: int(c) for r, c in enumerate(counts) if c} == existing.by_row
        counts_of: dict[Hashable, tuple[int, dict[int, int]]] = {
            key: (one.pods, dict(one.by_row)) for key, one in self._terms.items()
        }
        counts_of |= {key: (one.pods, dict(one.by_row)) for key, one in self._many.items()}
        return counts_of
