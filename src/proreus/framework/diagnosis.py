"""Why a pod could not be placed, and how that is told.

The text is kube-scheduler's FitError, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Rows, Verdicts

_UNRESOLVABLE = Status(Code.UNRESOLVABLE)


@dataclass(slots=True)
class Diagnosis:
    """What is known of a failed attempt.

    ``verdicts`` are by row of the cluster's table; ``evaluated`` names the rows that were looked
    at (None = all); every other row has the status ``absent_nodes_status``.
    """

    verdicts: Verdicts
    evaluated: Rows | None = None
    absent_nodes_status: Status = _UNRESOLVABLE
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    pre_filter_message: str = ""
    post_filter_message: str = ""

    def add_plugin_status(self, status: Status) -> None:
        """Note who rejected the pod; Pending counts in both sets."""
        if not status.plugin or not status.rejected:
            return
        self.unschedulable_plugins.add(status.plugin)
        if status.code == Code.PENDING:
            self.pending_plugins.add(status.plugin)

    def note_rejectors(self) -> None:
        """Note every plugin that rejected a row."""
        for status in self.verdicts.counts():
            self.add_plugin_status(status)

    def complete(self) -> Verdicts:
        """Return verdicts in which the rows that were not looked at have the absent status."""
        if self.evaluated is None:
            return self.verdicts
        full = self.verdicts.copy()
        not_evaluated = np.ones(full.size, dtype=np.bool_)
        not_evaluated[self.evaluated] = False
        full.reject_with(not_evaluated, self.absent_nodes_status)
        return full

    def with_copied_verdicts(self) -> Diagnosis:
        """Return the same with verdicts of its own: those of a search follow the nodes, which is
        wrong for whoever tells of it only after pods were tried on them."""
        return replace(self, verdicts=self.verdicts.copy())

    def of_rows(self, rows: Rows) -> Diagnosis:
        """Return what is known of some rows, as if there were no others."""
        return replace(self, verdicts=self.complete().take(rows), evaluated=None)


@dataclass(frozen=True, slots=True)
class FitError:
    """No node can take the pod (kube-scheduler's FitError): a value, not an error.

    ``num_all_nodes``: nodes of the cluster; 1 when Reserve or Permit turned a chosen node down.
    """

    num_all_nodes: int
    diagnosis: Diagnosis

    @property
    def message(self) -> str:
        """The text of the FailedScheduling event and of the PodScheduled condition."""
        diagnosis = self.diagnosis
        text = f"0/{self.num_all_nodes} nodes are available:"
        if diagnosis.pre_filter_message:
            text += f" {diagnosis.pre_filter_message}."
        else:
            reasons = reason_histogram(diagnosis.complete())
            if reasons:
                text += f" {reasons}."
        if diagnosis.post_filter_message:
            text += f" {diagnosis.post_filter_message}"
        return text


def reason_histogram(verdicts: Verdicts) -> str:
    """Return ``<count> <reason>, …`` over all rows, sorted as plain strings."""
    totals: Counter[str] = Counter()
    for status, count in verdicts.counts().items():
        for reason in status.reasons:
            totals[reason] += count
    return ", ".join(sorted(f"{count} {reason}" for reason, count in totals.items()))
