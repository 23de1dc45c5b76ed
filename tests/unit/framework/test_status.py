"""Statuses and their codes."""

from __future__ import annotations

import pytest

from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult
from proreus.framework.status import MOST_CHARACTERS, Code, Status, code_of


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


def test_reasons_are_texts_without_methods_of_their_own() -> None:
    class Why(str):
        __slots__ = ()

        def __str__(self) -> str:
            raise SystemExit

        __format__ = __hash__ = __str__

    [reason] = Status.unschedulable(Why("no")).reasons
    assert type(reason) is str
    assert reason == "no"


def test_lone_surrogates_in_reasons_are_replaced() -> None:
    assert Status.unschedulable("caf\ud800e", "f\u00fcr").reasons == ("caf\ufffde", "f\u00fcr")
    assert Status.error("\udc00").message.encode()


def test_the_plugins_name_is_a_text_that_can_be_encoded() -> None:
    assert Status(Code.UNSCHEDULABLE, ("no",), "caf\ud800e").plugin == "caf\ufffde"
    with pytest.raises(TypeError, match="plugin must be a text, not 5"):
        Status(Code.UNSCHEDULABLE, ("no",), 5)  # type: ignore[arg-type]


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
    assert Status.unschedulable(longest).reasons == (longest,)
    cut = f"{longest}\u2026 ({MOST_CHARACTERS + 1} characters)"
    assert Status.error(longest + "x").reasons == (cut,)


def test_thousands_of_reasons_are_checked_as_few_are() -> None:
    plain = tuple(f"Insufficient example.com/r{number}" for number in range(1_000))
    assert Status(Code.UNSCHEDULABLE, plain).reasons is plain
    longest = "x" * (MOST_CHARACTERS + 1)
    for odd, valid in (("caf\ud800e", "caf\ufffde"), (longest, Status.error(longest).message)):
        assert Status.unschedulable(*plain, odd).reasons == (*plain, valid)
    with pytest.raises(TypeError, match="reasons must be texts, not 5"):
        Status.unschedulable(*plain, 5)  # type: ignore[arg-type]
