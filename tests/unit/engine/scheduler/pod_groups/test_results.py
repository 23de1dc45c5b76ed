"""What groups and pods fail with, from the results of a dry run."""

from __future__ import annotations

import pytest

from proreus.engine.cycles.attempt import Attempt, Failure, error_failure
from proreus.engine.groups.results import (
    UNSCHEDULABLE,
    PodGroupResult,
    PodResult,
    append_reason,
    complete,
    error_of,
    failures_of_untried,
    not_scheduled,
    successful_leaves,
)
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_group import PodGroupInfo
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.post_filter_result import CLEAR_NOMINATION, NominatingInfo
from proreus.framework.status import Status
from proreus.objects.meta import ObjectMeta
from proreus.objects.scheduling import CompositePodGroup, PodGroup
from proreus.testing import make_pod


def leaf(name: str) -> PodGroupInfo:
    group = PodGroup(metadata=ObjectMeta(name=name, namespace="default"))
    return PodGroupInfo("default", name, (), group)


def tree(name: str, *children: PodGroupInfo) -> PodGroupInfo:
    group = CompositePodGroup(metadata=ObjectMeta(name=name, namespace="default"))
    return PodGroupInfo("default", name, (), group, children)


def result_of(name: str, node_name: str = "", failure: Failure | None = None) -> PodResult:
    info = make_pod(name)
    queued = QueuedPodInfo(info, 0.0)
    attempt = Attempt(queued, info, None, CycleState(), 0.0)  # type: ignore[arg-type]
    return PodResult(queued, attempt, node_name, failure)


def keyed(*results: PodGroupResult):
    return {result.group.entity_key: result for result in results}


# ---- trees ---------------------------------------------------------------------------------------


def test_children_of_a_failed_group_fail_with_it() -> None:
    fitted, failed, untried = leaf("fitted"), leaf("failed"), leaf("untried")
    middle = tree("middle", untried)
    root = tree("root", fitted, failed, middle)
    own = Status.unschedulable("too few")
    status = Status.unschedulable("tree")
    results = keyed(
        PodGroupResult(root, status), PodGroupResult(fitted), PodGroupResult(failed, own)
    )
    complete(root, results)
    assert results[fitted.entity_key].status is status
    assert results[failed.entity_key].status is own
    assert results[middle.entity_key].status is status
    assert results[untried.entity_key].status is status


def test_children_of_a_group_that_fits_keep_their_results() -> None:
    fitted, failed = leaf("fitted"), leaf("failed")
    root, own = tree("root", fitted, failed), Status.unschedulable("too few")
    results = keyed(PodGroupResult(root), PodGroupResult(fitted), PodGroupResult(failed, own))
    complete(root, results)
    assert results[fitted.entity_key].status is None
    assert results[failed.entity_key].status is own


def test_leaves_count_below_groups_that_fit_alone() -> None:
    a, b, c = leaf("a"), leaf("b"), leaf("c")
    middle = tree("middle", c)
    root = tree("root", a, b, middle)
    pods = [result_of("p", "n")]
    results = keyed(
        PodGroupResult(root),
        PodGroupResult(a, pods=pods),
        PodGroupResult(b, Status.unschedulable("no"), pods=pods),
        PodGroupResult(middle, Status.unschedulable("no")),
        PodGroupResult(c, pods=pods),
    )
    assert [one.group.name for one in successful_leaves(root, results)] == ["a"]


def test_a_reason_is_appended_once_for_each_group_that_shares_a_status() -> None:
    shared, own = Status.unschedulable("tree"), Status.unschedulable("alone")
    results = [
        PodGroupResult(leaf("a"), shared),
        PodGroupResult(leaf("b"), shared),
        PodGroupResult(leaf("c"), own),
        PodGroupResult(leaf("d")),
    ]
    append_reason(results, "why")
    reasons = [one.status and one.status.reasons for one in results]
    assert reasons == [("tree", "why", "why"), ("tree", "why", "why"), ("alone", "why"), None]


def test_the_text_of_an_error_hides_the_reasons_of_an_unschedulable_group() -> None:
    assert error_of(not_scheduled(Status.wait(0.0, "not yet"))) == UNSCHEDULABLE
    assert error_of(Status.unschedulable("never")) == "never"


# ---- pods ----------------------------------------------------------------------------------------

NODE = NominatingInfo("n")


@pytest.mark.parametrize(
    ("status", "waiting", "own", "text", "nominating"),
    [
        # The pod may be bound.
        (None, False, None, None, None),
        # The pod does not fit, whatever the group does.
        (None, False, Failure(Status.unschedulable("full"), nominating=None), "full", None),
        # The group does not fit: with the pod's node kept while victims go.
        (
            Status.unschedulable("group"),
            False,
            None,
            "pod group is unschedulable, group",
            CLEAR_NOMINATION,
        ),
        (Status.unschedulable("group"), True, None, "group", NODE),
        (
            Status.unschedulable("group"),
            True,
            Failure(Status.unschedulable("full"), nominating=None),
            "full",
            NODE,
        ),
        # An error: the pod's own says most.
        (Status.error("group"), False, None, "group", CLEAR_NOMINATION),
        (Status.error("group"), False, error_failure("own"), "own", CLEAR_NOMINATION),
        (
            Status.error("group"),
            False,
            Failure(Status.unschedulable("full"), nominating=NODE),
            "group",
            CLEAR_NOMINATION,
        ),
    ],
)
def test_a_pod_fails_with_its_group_or_by_itself(status, waiting, own, text, nominating) -> None:
    pod = result_of("p", "" if own else "n", own)
    nominated = {"default/p": NODE} if waiting else {}
    result = PodGroupResult(
        leaf("g"), status, [pod], waiting_on_preemption=waiting, nominating=nominated
    )
    failure = result.failure_of(pod)
    assert (failure and failure.message) == text
    if failure is not None:
        assert failure.nominating == nominating


def test_pods_that_were_not_tried_fail_with_the_group() -> None:
    pods = [result_of("p", "n"), result_of("q"), result_of("r")]
    result = PodGroupResult(leaf("g"), Status.unschedulable("never"), pods[:1])
    failures = list(failures_of_untried(result, [pod.queued for pod in pods]))
    assert [queued.info.name for queued, _ in failures] == ["q", "r"]
    assert {failure.message for _, failure in failures} == {"never"}
