"""Existing pods grouped by namespace and labels, and columns that count the pods matching a query.

A query, a ``PodQuery`` or a ``TermCount``, is evaluated once for each group (namespace, labels,
terminating) and becomes a column of counts by row, updated while it is in use. The groups that may
match a query, and the queries that may match a new group, are found by an index over labels instead
of a scan.

Example: 30,000 pods of 200 Deployments are 200 groups. A query ``app=web`` looks the label up in
the index, evaluates the one group it finds, and its column is that group's ``by_row``. Another web
pod adds 1 to one cell of the column, without evaluating any selector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

from msgspec import Struct

from proreus.framework.count_columns import CountColumn, CountColumns
from proreus.framework.selector_index import LabelNeeds, LabelPair, SelectorIndex, needs_of
from proreus.framework.term_set import TermCount
from proreus.framework.verdicts import IntArray
from proreus.objects.pod import Pod
from proreus.objects.selectors import Selector

K = TypeVar("K")

_GroupKey = tuple[str, frozenset[LabelPair], bool]
"""Namespace, labels, and whether the pods are being deleted."""


class PodMatch(NamedTuple):
    """Matches pods of these namespaces (None for all) whose labels the selector selects."""

    namespaces: frozenset[str] | None
    selector: Selector

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod matches."""
        return (self.namespaces is None or namespace in self.namespaces) and self.selector.matches(
            labels
        )


class PodQuery(Struct, frozen=True, cache_hash=True, gc=False):
    """Selects the pods that all of the matches match; there is at least one match.

    ``skip_terminating``: pods that are being deleted do not count. Keep a query rather than build
    it again: the hash is computed once.
    """

    matches: tuple[PodMatch, ...]
    skip_terminating: bool = False

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Namespaces that every selected pod is in one of; None if it may be any."""
        # A pod must match all of them, so the first one alone bounds the candidates.
        return self.matches[0].namespaces

    @property
    def needs(self) -> LabelNeeds:
        """The labels that every selected pod needs."""
        return needs_of(self.matches[0].selector)

    def selects(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> bool:
        """Return whether pods with these properties count."""
        if terminating and self.skip_terminating:
            return False
        return all(match.matches(namespace, labels) for match in self.matches)

    def weigh(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> int:
        """Return the count of a pod with these properties."""
        return int(self.selects(namespace, labels, terminating))

    def selects_pod(self, pod: Pod) -> bool:
        """Return whether a pod counts."""
        meta = pod.metadata
        return self.selects(meta.namespace, meta.labels, meta.deletion_timestamp is not None)


class PodLabelGroup:
    """Pods that every query treats the same. ``by_row``: their number by row.

    ``columns``: those that count these pods, with what one pod counts.
    """

    __slots__ = ("by_row", "columns", "labels", "namespace", "terminating")

    def __init__(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> None:
        self.namespace = namespace
        self.labels = labels
        self.terminating = terminating
        self.by_row: dict[int, int] = {}
        self.columns: dict[CountColumn, int] = {}

    def weight_in(self, query: Query) -> int:
        """Return the count of one of these pods for a query."""
        return query.weigh(self.namespace, self.labels, self.terminating)


Query = PodQuery | TermCount


class PodLabelGroups:
    """All groups, and the columns of the queries in use.

    Invariants: a group has pods; a column is the sum of the groups that its query selects.
    """

    def __init__(self, columns: CountColumns) -> None:
        self._columns = columns
        self._groups: dict[_GroupKey, PodLabelGroup] = {}
        self._by_namespace: dict[str, dict[PodLabelGroup, None]] = {}
        self._by_label: dict[tuple[str, LabelPair], dict[PodLabelGroup, None]] = {}
        self._queries: SelectorIndex[Query] = SelectorIndex()

    def __iter__(self) -> Iterator[PodLabelGroup]:
        return iter(self._groups.values())

    def add(self, row: int, pod: Pod) -> None:
        """Add a pod to its group and the columns that count it."""
        key = _group_key(pod)
        group = self._groups.get(key)
        if group is None:
            namespace, _, terminating = key
            labels = pod.metadata.labels
            group = self._groups[key] = PodLabelGroup(namespace, labels, terminating)
            self._add_group(group)
        by_row = group.by_row
        by_row[row] = by_row.get(row, 0) + 1
        # The group knows the columns that count it, so no selector is evaluated when a pod comes;
        # that has happened once, when the group or the query was new.
        for column, weight in group.columns.items():
            column.counts[row] += weight

    def remove(self, row: int, pod: Pod) -> None:
        """Remove a pod from its group and the columns that count it."""
        key = _group_key(pod)
        group = self._groups[key]
        by_row = group.by_row
        if by_row[row] > 1:
            by_row[row] -= 1
        else:
            del by_row[row]
        for column, weight in group.columns.items():
            column.counts[row] -= weight
        # Label sets come and go with every ReplicaSet (pod-template-hash): an empty group that
        # stayed would be evaluated by each new query for ever.
        if not by_row:
            del self._groups[key]
            self._remove_group(group)

    def update(self, row: int, old: Pod, new: Pod) -> None:
        """Move a pod from the group of its old version to that of its new one."""
        was_terminating = old.metadata.deletion_timestamp is not None
        if old.metadata.labels != new.metadata.labels or was_terminating != (
            new.metadata.deletion_timestamp is not None
        ):
            self.remove(row, old)
            self.add(row, new)

    def columns(
        self, queries: Sequence[Query], check: Callable[[], None] = lambda: None
    ) -> list[IntArray]:
        """Return the number of pods by row that each query selects; longer than the table.

        All queries have the same ``namespaces`` and ``needs``. ``check`` is called for each group
        that is looked at.
        """
        known = {query: self._columns.get(query) for query in queries}
        missing = [query for query, column in known.items() if column is None]
        candidates = [*self._candidates(missing[0])] if missing else []
        # Many terms name labels that no pod has yet: finding that again costs less than a column
        # and its place in the index.
        if candidates or (missing and not missing[0].needs.any):
            known |= self._new_columns(missing, candidates, check)
        zeros = self._columns.zeros()
        return [zeros if column is None else column.counts for column in known.values()]

    def _new_columns(
        self,
        queries: Sequence[Query],
        candidates: Iterable[PodLabelGroup],
        check: Callable[[], None],
    ) -> dict[Query, CountColumn]:
        weights: dict[Query, dict[PodLabelGroup, int]] = {query: {} for query in queries}
        # Group by group: the terms of a pod find all of their sums for a group at once.
        for group in candidates:
            check()
            for query, by_group in weights.items():
                if weight := group.weight_in(query):
                    by_group[group] = weight
        columns = {}
        for query, by_group in weights.items():
            column = columns[query] = self._columns.new(query, partial(self._on_evicted, query))
            self._queries.add(query.needs, query)
            for group, weight in by_group.items():
                group.columns[column] = weight
                column.add_all(group.by_row, weight)
        return columns

    def row_differs(self, row: int, pods: Iterable[Pod], columns: Iterable[CountColumn]) -> bool:
        """Return whether a group or a column counts other pods on a row than these.

        ``columns``: those of all queries.
        """
        counted: Counter[CountColumn] = Counter()
        for key, number in Counter(map(_group_key, pods)).items():
            group = self._groups.get(key)
            if group is None or group.by_row.get(row) != number:
                return True
            counted.update({column: weight * number for column, weight in group.columns.items()})
        return any(column.counts[row] != counted[column] for column in columns)

    def _candidates(self, query: Query) -> Iterator[PodLabelGroup]:
        """Yield the groups that a query may select, each once."""
        namespaces, labels = query.namespaces, query.needs.labels
        for namespace in self._by_namespace if namespaces is None else namespaces:
            groups = self._by_namespace.get(namespace, {})
            if labels and len(labels) <= len(groups):
                found = [self._by_label.get((namespace, label), {}) for label in labels]
                yield from dict.fromkeys(chain.from_iterable(found))
            else:
                yield from groups

    def _add_group(self, group: PodLabelGroup) -> None:
        """Index a new group, and attach the columns of the queries that select it."""
        namespace = group.namespace
        self._by_namespace.setdefault(namespace, {})[group] = None
        for label in group.labels.items():
            self._by_label.setdefault((namespace, label), {})[group] = None
        for query in self._queries.candidates(group.labels):
            if weight := group.weight_in(query):
                group.columns[self._columns[query]] = weight

    def _remove_group(self, group: PodLabelGroup) -> None:
        namespace = group.namespace
        _remove(self._by_namespace, namespace, group)
        for label in group.labels.items():
            _remove(self._by_label, (namespace, label), group)

    def _on_evicted(self, query: Query, column: CountColumn) -> None:
        self._queries.discard(query.needs, query)
        for group in self._candidates(query):
            group.columns.pop(column, None)


def _group_key(pod: Pod) -> _GroupKey:
    meta = pod.metadata
    return meta.namespace, frozenset(meta.labels.items()), meta.deletion_timestamp is not None


def _remove(groups: dict[K, dict[PodLabelGroup, None]], key: K, group: PodLabelGroup) -> None:
    inside = groups[key]
    del inside[group]
    if not inside:
        del groups[key]
