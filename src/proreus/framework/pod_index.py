"""The pods of a table, counted by row for whoever looks across nodes.

Two questions cost the same however many pods there are: how many pods does a selector mean on each
node (``count``); and which existing pods' terms mean this pod (``required_anti.meaning`` and the
like), and where are they (``count_term``). Pods are grouped only from the first ``count`` on, so
that clusters without spreading and affinity pay nothing. Pods on nodes without a row do not count.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from proreus.framework.affinity_terms import ExistingTerm, ExistingTerms, affinity_terms_of
from proreus.framework.count_columns import CountColumns
from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_label_groups import PodLabelGroups, PodQuery
from proreus.framework.verdicts import CodeArray
from proreus.objects.pod import Pod


class PodIndex:
    """Counts of the pods on the rows of one table, which tells it of every change.

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
                self._add_terms(info.row, pod.pod)

    def count(self, query: PodQuery) -> CodeArray:
        """Return by row how many pods a query means; longer than the table, not to be written."""
        if self._groups is None:
            self._groups = PodLabelGroups(self._columns)
            for info in self._infos:
                for pod in info.pods.values():
                    self._groups.add(info.row, pod.pod)
        return self._groups.column(query)

    def count_term(self, existing: ExistingTerm) -> CodeArray:
        """Return by row what the pods with a term add up to; as ``count``."""
        column = self._columns.get(existing)
        if column is None:
            column = existing.column = self._columns.new(existing, existing.on_evicted)
            column.add_all(existing.by_row)
        return column.counts

    def add(self, row: int, pod: PodInfo) -> None:
        """Count a pod in."""
        if pod.pod.spec.affinity is not None:
            self._add_terms(row, pod.pod)
        if self._groups is not None:
            self._groups.add(row, pod.pod)

    def remove(self, row: int, pod: PodInfo) -> None:
        """Count a pod out."""
        if pod.pod.spec.affinity is not None:
            self._remove_terms(row, pod.pod)
        if self._groups is not None:
            self._groups.remove(row, pod.pod)

    def add_row(self, info: NodeInfo) -> None:
        """Count all pods of a node in."""
        for pod in info.pods.values():
            self.add(info.row, pod)

    def remove_row(self, info: NodeInfo) -> None:
        """Count all pods of a node out."""
        for pod in info.pods.values():
            self.remove(info.row, pod)

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self._columns.grow(capacity)

    def _add_terms(self, row: int, pod: Pod) -> None:
        terms = affinity_terms_of(pod)
        for term in terms.required_anti:
            self.required_anti.add(row, term)
        for term in terms.required:
            self.required.add(row, term)
        for weight, term in terms.preferred:
            self.preferred.add(row, term, weight)
        for weight, term in terms.preferred_anti:
            self.preferred.add(row, term, -weight)

    def _remove_terms(self, row: int, pod: Pod) -> None:
        terms = affinity_terms_of(pod)
        for term in terms.required_anti:
            self.required_anti.remove(row, term)
        for term in terms.required:
            self.required.remove(row, term)
        for weight, term in terms.preferred:
            self.preferred.remove(row, term, weight)
        for weight, term in terms.preferred_anti:
            self.preferred.remove(row, term, -weight)

    def validate(self) -> None:
        """Derive all counts anew and raise ``AssertionError`` where one is out of step."""
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
