"""The result of a search for nodes: which can take the pod, and why the others cannot.

Shared where it can be: the verdicts may be those of the pod's ``EquivalenceClass``, so nothing is
copied unless another plugin, a nominated pod or an extender rejects a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Rows, Verdicts
from proreus.runtime.equivalence_cache import EquivalenceClass
from proreus.runtime.node_points import override_verdict
from proreus.runtime.plugin_results import PodSignatures


@dataclass(slots=True)
class FeasibleNodes:
    """The nodes that passed the filters, and the verdicts of the others.

    ``verdicts``: by row of the whole table. ``evaluated``: the rows that were filtered; None = all.
    ``equivalence_class``: the cached results for the pod's ``signatures``, of all rows; None if
    they were not used. ``rejected_by_extender``: HTTP extenders rejected nodes. ``without_pods``:
    extenders returned the other nodes as objects, which kube-scheduler takes for nodes without
    pods.
    """

    verdicts: Verdicts
    evaluated: Rows | None
    equivalence_class: EquivalenceClass | None
    signatures: PodSignatures
    _rows: Rows | None = None
    rejected_by_extender: bool = False
    without_pods: bool = False

    @classmethod
    def single(cls, table: NodeTable, row: int, pod: PodInfo) -> FeasibleNodes:
        """Return the result of a search in which one node was filtered and can take the pod."""
        rows = np.array([row], dtype=np.intp)
        return cls(Verdicts(table.size), rows, None, PodSignatures(pod))

    @property
    def shares_verdicts(self) -> bool:
        """Whether ``verdicts`` are those of the equivalence class: no other plugin rejected a
        node."""
        shared = self.equivalence_class
        return shared is not None and self.verdicts is shared.verdicts

    @property
    def all_from_cache(self) -> bool:
        """Whether the result is that of the equivalence class, of all rows."""
        # Spelled out here and in ``count``: they are read several times a pod.
        shared = self.equivalence_class
        return shared is not None and self.verdicts is shared.verdicts and self.evaluated is None

    @property
    def all_nodes_feasible(self) -> bool:
        """Whether all nodes can take the pod, and ``rows`` are simply those of the table."""
        return self.all_from_cache and self.count == self.verdicts.size

    @property
    def count(self) -> int:
        """How many nodes can take the pod."""
        shared = self.equivalence_class
        if shared is not None and self.verdicts is shared.verdicts and self.evaluated is None:
            return shared.feasible_count
        return len(self.rows)

    @property
    def rows(self) -> Rows:
        """The rows of the nodes that can take the pod."""
        if self._rows is None:
            if self.evaluated is None:
                self._rows = self.verdicts.passed_rows()
            elif self.shares_verdicts:
                assert self.equivalence_class is not None
                self._rows = self.evaluated[self.equivalence_class.feasible[self.evaluated]]
            else:
                self._rows = self.evaluated[self.evaluated_verdicts.passed()]
        return self._rows

    @property
    def evaluated_verdicts(self) -> Verdicts:
        """The verdicts of the rows that were filtered."""
        return self.verdicts if self.evaluated is None else self.verdicts.take(self.evaluated)

    def add_rejection(self, row: int, status: Status) -> None:
        """Add the rejection of a row filtered by itself, unless the search filtered it too."""
        if self.evaluated is not None and row not in self.evaluated:
            self.verdicts.reject_row(row, status)
            self.evaluated = np.append(self.evaluated, row)
            self._rows = None

    def after_extenders(
        self, rows: list[int], rejected: Mapping[int, Status], without_pods: bool
    ) -> FeasibleNodes:
        """Return the result after HTTP extenders: the ``rows`` they kept, ``rejected`` the others.

        A row that is in neither counts as not evaluated.
        """
        verdicts, evaluated = self.verdicts.copy(), self.evaluated
        for row, status in rejected.items():
            override_verdict(verdicts, row, status)
        gone = set(self.rows.tolist()).difference(rows)
        # kube-scheduler keeps the statuses that an extender gave a reason for; a node that it only
        # drops from its list is in no status map, and so not in the failure message.
        if silent := gone - rejected.keys():
            everything = np.arange(verdicts.size) if evaluated is None else evaluated
            evaluated = np.setdiff1d(everything, list(silent))
        if evaluated is not None and rejected:
            evaluated = np.union1d(evaluated, list(rejected))
        kept = np.array(rows, dtype=np.intp)
        # Cached scores were computed with the pods on the nodes; ``without_pods`` needs others.
        equivalence_class = None if without_pods else self.equivalence_class
        return FeasibleNodes(
            verdicts, evaluated, equivalence_class, self.signatures, kept, bool(gone), without_pods
        )
