"""What groups and pods fail with, from the results of a dry run."""

from __future__ import annotations

import pytest

from proreus.engine.cycles.attempt import Attempt, Failure, error_failure
from proreus.engine.groups.failures import ExplainingFailures, GroupFailures
from proreus.engine.groups.results import PodGroupResult, PodResult, successful_leaves
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


EXPLAINING, NAMING = ExplainingFailures(), GroupFailures()


# ---- trees ---------------------------------------------------------------------------------------


def test_groups_below_a_failed_one_name_the_nearest_that_failed() -> None:
    fitted, failed, untried = leaf("fitted"), leaf("failed"), leaf("untried")
    below = leaf("below")
    middle = tree("middle", below)
    root = tree("root", fitted, failed, middle, untried)
    results = keyed(
        PodGroupResult(root, Status.unschedulable("too few").with_plugin("Gang")),
        PodGroupResult(fitted, pods=[result_of("p", "n")]),
        PodGroupResult(failed, Status.unschedulable("own")),
        PodGroupResult(middle, Status.unschedulable("middle's own")),
    )
    NAMING.complete(root, results)
    of_root = Status.unschedulable('ancestor composite pod group "root" is unschedulable')
    of_middle = Status.unschedulable('ancestor composite pod group "middle" is unschedulable')
    assert results[fitted.entity_key].status == of_root.with_plugin("Gang")
    assert results[fitted.entity_key].pods
    assert results[untried.entity_key].status == of_root.with_plugin("Gang")
    assert results[failed.entity_key].status == Status.unschedulable("own")
    assert results[middle.entity_key].status == Status.unschedulable("middle's own")
    assert results[below.entity_key].status == of_middle


def test_an_error_above_counts_for_more_than_a_rejection() -> None:
    rejected, broken, below = leaf("rejected"), leaf("broken"), leaf("below")
    middle = tree("middle", below)
    root = tree("root", rejected, broken, middle)
    results = keyed(
        PodGroupResult(root, Status.error("child")),
        PodGroupResult(rejected, Status.unschedulable("own")),
        PodGroupResult(broken, Status.error("own")),
        PodGroupResult(middle, Status.unschedulable("own")),
    )
    NAMING.complete(root, results)
    of_root = Status.error('ancestor composite pod group "root" encountered an error')
    assert results[rejected.entity_key].status == of_root
    assert results[broken.entity_key].status == Status.error("own")
    assert results[middle.entity_key].status == of_root
    assert results[below.entity_key].status == of_root


def test_children_of_a_failed_group_fail_with_its_reason_up_to_1_37() -> None:
    fitted, failed, untried = leaf("fitted"), leaf("failed"), leaf("untried")
    middle = tree("middle", untried)
    root = tree("root", fitted, failed, middle)
    own = Status.unschedulable("too few")
    status = Status.unschedulable("tree")
    results = keyed(
        PodGroupResult(root, status), PodGroupResult(fitted), PodGroupResult(failed, own)
    )
    EXPLAINING.complete(root, results)
    assert results[fitted.entity_key].status is status
    assert results[failed.entity_key].status is own
    assert results[middle.entity_key].status is status
    assert results[untried.entity_key].status is status


@pytest.mark.parametrize("failures", [NAMING, EXPLAINING])
def test_children_of_a_group_that_fits_keep_their_results(failures: GroupFailures) -> None:
    fitted, failed = leaf("fitted"), leaf("failed")
    root, own = tree("root", fitted, failed), Status.unschedulable("too few")
    results = keyed(PodGroupResult(root), PodGroupResult(fitted), PodGroupResult(failed, own))
    failures.complete(root, results)
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


def test_a_reason_is_appended_to_the_status_of_each_group() -> None:
    results = [PodGroupResult(leaf("a"), Status.unschedulable("no")), PodGroupResult(leaf("b"))]
    NAMING.append_reason(results, "")
    NAMING.append_reason(results, "why")
    assert [one.status and one.status.reasons for one in results] == [("no", "why"), None]


def test_a_reason_is_appended_once_for_each_group_that_shares_a_status_up_to_1_37() -> None:
    shared, own = Status.unschedulable("tree"), Status.unschedulable("alone")
    results = [
        PodGroupResult(leaf("a"), shared),
        PodGroupResult(leaf("b"), shared),
        PodGroupResult(leaf("c"), own),
        PodGroupResult(leaf("d")),
    ]
    EXPLAINING.append_reason(results, "why")
    reasons = [one.status and one.status.reasons for one in results]
    assert reasons == [("tree", "why", "why"), ("tree", "why", "why"), ("alone", "why"), None]


def test_a_group_that_fits_in_no_placement_gives_the_reason_of_the_first() -> None:
    first = NAMING.rejection(Status.wait(0.0, "not yet").with_plugin("Gang"))
    text = "0/2 placements are available, first placement status: not yet"
    assert NAMING.in_no_placement(first, 2) == Status.unschedulable(text).with_plugin("Gang")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (EXPLAINING.rejection(Status.wait(0.0, "not yet")), "pod group is unschedulable"),
        (Status.unschedulable("never"), "never"),
    ],
)
def test_up_to_1_37_the_words_of_all_rejections_hide_the_reason(status, reason) -> None:
    text = f"0/2 placements are available, first placement status: {reason}"
    assert EXPLAINING.in_no_placement(status, 2).reasons == ("pod group is unschedulable", text)


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
def test_a_pod_fails_with_its_group_or_by_itself_up_to_1_37(
    status, waiting, own, text, nominating
) -> None:
    pod = result_of("p", "" if own else "n", own)
    nominated = {"default/p": NODE} if waiting else {}
    result = PodGroupResult(
        leaf("g"), status, [pod], waiting_on_preemption=waiting, nominating=nominated
    )
    failure = EXPLAINING.of_pod(result, pod)
    assert (failure and failure.message) == text
    if failure is not None:
        assert failure.nominating == nominating


PARENT = 'parent pod group "g" is unschedulable'


@pytest.mark.parametrize(
    ("result", "text", "nominating", "rejectors"),
    [
        (PodGroupResult(leaf("g")), None, None, None),
        (
            PodGroupResult(leaf("g"), Status.unschedulable("few").with_plugin("Gang")),
            PARENT,
            CLEAR_NOMINATION,
            {"Gang"},
        ),
        (
            PodGroupResult(
                leaf("g"),
                Status.unschedulable("few").with_plugin("Gang"),
                waiting_on_preemption=True,
                nominating={"default/p": NODE},
            ),
            PARENT,
            NODE,
            {"Gang"},
        ),
        # Without a placement nothing was tried that could have a reason of its own.
        (
            PodGroupResult(
                leaf("g"), Status.unschedulable("no domain").with_plugin("Topology"), verbatim=True
            ),
            "no domain",
            CLEAR_NOMINATION,
            set(),
        ),
        (
            PodGroupResult(leaf("g"), Status.error("broken")),
            'parent pod group "g" encountered an error',
            CLEAR_NOMINATION,
            set(),
        ),
    ],
)
def test_a_pod_that_fits_names_the_group_that_does_not(result, text, nominating, rejectors) -> None:
    failure = NAMING.of_pod(result, result_of("p", "n"))
    assert (failure and failure.message) == text
    if failure is not None:
        assert failure.nominating == nominating
        assert failure.rejectors == rejectors


@pytest.mark.parametrize(
    ("status", "own", "text"),
    [
        (Status.unschedulable("few"), Failure(Status.unschedulable("full")), "full"),
        (Status.error("broken"), error_failure("own"), "own"),
        (
            Status.error("broken"),
            Failure(Status.unschedulable("full")),
            'parent pod group "g" encountered an error',
        ),
    ],
)
def test_a_pod_that_does_not_fit_tells_why(status, own, text) -> None:
    failure = NAMING.of_pod(PodGroupResult(leaf("g"), status), result_of("p", failure=own))
    assert failure is not None
    assert failure.message == text


@pytest.mark.parametrize(("failures", "text"), [(NAMING, PARENT), (EXPLAINING, "never")])
def test_pods_that_were_not_tried_fail_with_the_group(failures: GroupFailures, text: str) -> None:
    pods = [result_of("p", "n"), result_of("q"), result_of("r")]
    result = PodGroupResult(leaf("g"), Status.unschedulable("never"), pods[:1])
    found = list(failures.of_untried(result, [pod.queued for pod in pods]))
    assert [queued.info.name for queued, _ in found] == ["q", "r"]
    assert {failure.message for _, failure in found} == {text}
