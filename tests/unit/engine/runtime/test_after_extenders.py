"""FeasibleNodes.after_extenders: the nodes that extenders kept, and their reasons."""

import numpy as np

from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.framework.diagnosis import Diagnosis, FitError
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts

FULL = Status(Code.UNSCHEDULABLE, ("full",), "Fit")
BUSY = Status.unschedulable("busy")


def found(evaluated=None):
    """Six rows, of which row 0 is full."""
    verdicts = Verdicts(6)
    verdicts.reject_row(0, FULL)
    return FeasibleNodes(verdicts, evaluated, None, {})


def message(left):
    return FitError(6, Diagnosis(left.verdicts, left.evaluated)).message


def test_nothing_is_left_out():
    left = found().after_extenders([1, 2, 3, 4, 5], {}, without_pods=False)
    assert left.rows.tolist() == [1, 2, 3, 4, 5]
    assert (left.count, left.evaluated, left.rejected_by_extender) == (5, None, False)


def test_reasons_are_told_and_silence_is_not():
    before = found()
    left = before.after_extenders([5], {1: BUSY, 2: BUSY}, without_pods=True)
    assert (left.rows.tolist(), left.rejected_by_extender, left.without_pods) == ([5], True, True)
    assert left.evaluated.tolist() == [0, 1, 2, 5]
    assert message(left) == "0/6 nodes are available: 1 full, 2 busy."
    assert left.evaluated_verdicts.rows_with(Code.UNSCHEDULABLE).tolist() == [0, 1, 2]
    assert before.verdicts.counts() == {FULL: 1}, "that may belong to other pods too"


def test_an_extender_may_speak_of_nodes_that_it_was_not_asked_about():
    left = found(np.array([0, 1, 2])).after_extenders([], {0: BUSY, 4: BUSY}, without_pods=False)
    assert left.evaluated.tolist() == [0, 4]
    assert message(left) == "0/6 nodes are available: 2 busy."
    assert left.count == 0


def test_the_reason_of_an_extender_is_no_plugins() -> None:
    verdicts = Verdicts(6, "TaintToleration")
    verdicts.reject(np.array([0]), "node(s) had untolerated taint(s)")
    before = FeasibleNodes(verdicts, None, None, {})
    left = before.after_extenders([2, 3, 4, 5], {1: BUSY}, without_pods=False)
    assert left.verdicts.status(1) == BUSY
