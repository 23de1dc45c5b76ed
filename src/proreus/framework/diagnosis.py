"""Why no node can take a pod: kube-scheduler's ``Diagnosis`` and ``FitError``.

Example: 3 nodes lack cpu, 1 of them memory too, 1 has a taint. The message is ``0/4 nodes are
available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), 3 Insufficient cpu.``
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Rows, Verdicts

_UNRESOLVABLE = Status(Code.UNRESOLVABLE)


class Diagnosis(Struct):
    """The verdicts of a failed attempt, and the plugins that rejected the pod.

    ``verdicts`` are by row of the cluster's table; ``evaluated`` are the rows that were filtered
    (None = all); every other row has the status ``absent_nodes_status``.
    """

    verdicts: Verdicts
    evaluated: Rows | None = None
    absent_nodes_status: Status = _UNRESOLVABLE
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    pre_filter_message: str = ""
    post_filter_message: str = ""

    def add_plugin_status(self, status: Status) -> None:
        """Record the plugin of a rejection, in both sets if its code is Pending."""
        if not status.plugin or not status.rejected:
            return
        self.unschedulable_plugins.add(status.plugin)
        if status.code == Code.PENDING:
            self.pending_plugins.add(status.plugin)

    def note_rejectors(self) -> None:
        """Record every plugin that rejected a row."""
        for status in self.verdicts.counts():
            self.add_plugin_status(status)

    def complete(self) -> Verdicts:
        """Return verdicts in which the rows that were not filtered have the absent status."""
        if self.evaluated is None:
            return self.verdicts
        full = self.verdicts.copy()
        not_evaluated = np.ones(full.size, dtype=np.bool_)
        not_evaluated[self.evaluated] = False
        full.reject_with(not_evaluated, self.absent_nodes_status)
        return full

    def with_copied_verdicts(self) -> Diagnosis:
        """Return the diagnosis with a copy of the verdicts."""
        # The verdicts of a search may be the cached ones, which later attempts bring up to date. A
        # diagnosis that is reported after those must keep what it was made of.
        return replace(self, verdicts=self.verdicts.copy())

    def of_rows(self, rows: Rows) -> Diagnosis:
        """Return the diagnosis of some rows, as if there were no others."""
        return replace(self, verdicts=self.complete().take(rows), evaluated=None)


class FitError(Struct, frozen=True):
    """No node can take the pod (kube-scheduler's FitError): a value, not an error.

    ``num_all_nodes``: nodes of the cluster; 1 if Reserve or Permit rejected the chosen node.
    """

    num_all_nodes: int
    diagnosis: Diagnosis

    @property
    def message(self) -> str:
        """The text of the FailedScheduling event and of the PodScheduled condition."""
        diagnosis = self.diagnosis
        text = f"0/{self.num_all_nodes} nodes are available:"
        # Rejected before any node was filtered: there is nothing to count, and PreFilter's message
        # stands in the place of the histogram.
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
    # No Counter, and no loop where there need not be one: a status may have tens of thousands of
    # reasons, which no other one has.
    totals: dict[str, int] = {}
    for status, count in verdicts.counts().items():
        reasons = dict.fromkeys(status.reasons, count)
        if len(reasons) == len(status.reasons) and totals.keys().isdisjoint(reasons):
            totals.update(reasons)
        else:
            for reason in status.reasons:
                totals[reason] = totals.get(reason, 0) + count
    # Sorted as texts, counts included: "10 …" comes before "9 …", as in kube-scheduler.
    numbers = {total: f"{total} " for total in totals.values()}
    return ", ".join(sorted([numbers[total] + reason for reason, total in totals.items()]))
