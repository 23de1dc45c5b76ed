"""Statuses and their codes."""

from __future__ import annotations

import pytest

from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult
from proreus.framework.status import MOST_CHARACTERS, Code, Status, checked, code_of


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: PostFilterResult(True),
        lambda: PostFilterResult(None, "n1"),
        lambda: PostFilterResult(None, None, ["a pod"]),
        lambda: NominatingInfo(None),
    ],
)
def test_results_of_post_filter_have_fields_of_their_types(make) -> None:
    with pytest.raises(TypeError, match="must be a"):
        make()


def test_a_status_is_a_plain_value() -> None:
    assert Status.unschedulable(5).reasons == (5,)  # type: ignore[arg-type]


def test_lone_surrogates_in_reasons_are_replaced() -> None:
    status = checked(Status.unschedulable("caf\ud800e", "f\u00fcr"))
    assert status.reasons == ("caf\ufffde", "f\u00fcr")
    assert checked(Status.error("\udc00")).message.encode()


def test_the_plugins_name_is_a_text_that_can_be_encoded() -> None:
    status = Status(Code.UNSCHEDULABLE, ("no",), "caf\ud800e")
    assert checked(status) == Status(Code.UNSCHEDULABLE, ("no",), "caf\ufffde")


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        (Status("Skip"), "code must be a Code, not 'Skip'"),  # type: ignore[arg-type]
        (Status(Code.ERROR, ["no"]), "reasons must be a tuple of texts"),  # type: ignore[arg-type]
        (Status.unschedulable("no", 5), "reason must be a text, not 5"),  # type: ignore[arg-type]
        (Status(Code.ERROR, (), 5), "plugin must be a text, not 5"),  # type: ignore[arg-type]
        (Status.wait("5"), "timeout_seconds must be a number"),  # type: ignore[arg-type]
        (Status.wait(float("nan")), "timeout_seconds must be a number, not nan"),
        (Status.wait(-1), "timeout_seconds must not be negative: -1"),
    ],
)
def test_fields_of_the_wrong_type_are_named(status: Status, wrong: str) -> None:
    with pytest.raises(TypeError, match=wrong):
        checked(status)


def test_a_status_has_no_methods_but_its_own() -> None:
    with pytest.raises(TypeError, match="Own: Status cannot be subclassed"):
        type("Own", (Status,), {})


def test_a_nominated_node_is_a_plain_text_that_can_be_encoded() -> None:
    class Name(str):
        __hash__ = None  # type: ignore[assignment]

    name = NominatingInfo(Name("n1")).node_name
    assert type(name) is str
    assert name == "n1"
    assert NominatingInfo("caf\ud800e").node_name == "caf\ufffde"


def test_reasons_of_megabytes_are_cut() -> None:
    longest = "x" * MOST_CHARACTERS
    status = Status.unschedulable(*map(str, range(1_000)), longest)
    assert checked(status) is status
    cut = f"{longest}\u2026 ({MOST_CHARACTERS + 1} characters)"
    assert checked(Status.error(longest + "x")).reasons == (cut,)
