"""Statuses and their codes."""

from __future__ import annotations

import pytest

from proreus.framework.status import Code, Status, code_of


@pytest.mark.parametrize(
    ("status", "code", "rejected"),
    [
        (Status.unschedulable("no"), Code.UNSCHEDULABLE, True),
        (Status.unresolvable("no"), Code.UNRESOLVABLE, True),
        (Status.pending("no"), Code.PENDING, True),
        (Status.skip(), Code.SKIP, False),
        (Status.wait(3.0), Code.WAIT, False),
        (Status.error("no"), Code.ERROR, False),
    ],
)
def test_codes(status: Status, code: Code, rejected: bool) -> None:
    assert code_of(status) == code
    assert status.rejected is rejected
    assert code_of(None) == Code.SUCCESS


def test_labels_are_those_of_kube_scheduler() -> None:
    assert [code.label for code in Code] == [
        "Success",
        "Error",
        "Unschedulable",
        "UnschedulableAndUnresolvable",
        "Wait",
        "Skip",
        "Pending",
    ]


def test_a_name_is_put_on() -> None:
    status = Status.unschedulable("a", "b")

    assert status.with_plugin("P") == Status(Code.UNSCHEDULABLE, ("a", "b"), "P")
    named = status.with_plugin("P")
    assert named.with_plugin("P") is named
    assert status.message == "a, b"
