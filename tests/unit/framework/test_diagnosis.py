"""FitError's text, byte for byte."""

from __future__ import annotations

import numpy as np

from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts


def rejected(*statuses: Status | None) -> Verdicts:
    verdicts = Verdicts(len(statuses))
    for row, status in enumerate(statuses):
        if status is not None:
            verdicts.reject_row(row, status)
    return verdicts


CPU = Status.unschedulable("Insufficient cpu").with_plugin("NodeResourcesFit")
BOTH = Status.unresolvable("Insufficient cpu", "Insufficient memory").with_plugin(
    "NodeResourcesFit"
)
TAINT = Status.unresolvable("node(s) had untolerated taint(s)").with_plugin("TaintToleration")


def test_reasons_are_counted_and_sorted_as_text() -> None:
    diagnosis = Diagnosis(rejected(CPU, BOTH, *[TAINT] * 10))
    diagnosis.post_filter_message = "preemption: no."

    assert FitError(12, diagnosis).message == (
        "0/12 nodes are available: 1 Insufficient memory, "
        "10 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: no."
    )


def test_a_pre_filter_message_stands_for_all_nodes() -> None:
    diagnosis = Diagnosis(rejected(CPU), pre_filter_message="pod affinity terms conflict")

    assert FitError(3, diagnosis).message == (
        "0/3 nodes are available: pod affinity terms conflict."
    )


def test_rows_that_were_not_looked_at_have_the_absent_status() -> None:
    absent_nodes_status = Status.unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]")
    diagnosis = Diagnosis(rejected(None, CPU, None), np.array([1]), absent_nodes_status)

    assert FitError(3, diagnosis).message == (
        "0/3 nodes are available: 1 Insufficient cpu, "
        "2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_without_nodes_there_are_no_reasons() -> None:
    assert FitError(0, Diagnosis(Verdicts(0))).message == "0/0 nodes are available:"


def test_who_rejected_is_noted() -> None:
    pending = Status.pending("later").with_plugin("Waiter")
    diagnosis = Diagnosis(rejected(CPU, TAINT, pending, None))

    diagnosis.note_rejectors()
    diagnosis.add_plugin_status(Status.error("no").with_plugin("Broken"))

    assert diagnosis.unschedulable_plugins == {"NodeResourcesFit", "TaintToleration", "Waiter"}
    assert diagnosis.pending_plugins == {"Waiter"}
