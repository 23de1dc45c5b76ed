"""One attempt of a PodGroup: what is bound, undone, reported and counted."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.base.errors import ApiError
from proreus.base.kubernetes_version import V1_38
from proreus.framework.plugin import (
    PermitPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.status import Status
from proreus.plugins.gang_scheduling import GangScheduling

NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"


class Journal(ReservePlugin):
    """Writes down what is reserved and undone; fails where a test says so.

    ``fails``: a status or an exception by the name of the pod, for the call of that number.
    """

    entries: list[str]
    fails: dict[tuple[str, int], Any]

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        type(self).entries, type(self).fails = [], {}

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
        self.entries.append(f"+{pod.name}")
        failure = self.fails.get((pod.name, self.entries.count(f"+{pod.name}")))
        if isinstance(failure, Exception):
            raise failure
        return failure

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.entries.append(f"-{pod.name}")


# ---- a group that fits ---------------------------------------------------------------------------


async def test_a_gang_that_fits_is_bound_in_one_attempt(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="2", b="2")
    cluster.group(min_count=3)
    cluster.pods("p", "q", "r")

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q", "r"]
    assert await cluster.schedule_next() is None
    condition = cluster.condition()
    assert (condition.status, condition.reason, condition.message) == ("True", "Scheduled", "")
    assert condition.observed_generation == 1
    assert cluster.notes("Scheduled").keys() == {"p", "q", "r"}
    assert cluster.attempts() == {"scheduled": 1}
    metrics = cluster.metrics
    assert (
        cluster.observed(
            metrics.podgroup_scheduling_algorithm_duration_seconds, kit.PROFILE, "podgroup"
        )
        == 1
    )
    assert cluster.observed(metrics.scheduling_algorithm_duration_seconds) == 3  # once a pod
    family = metrics.podgroup_scheduling_attempt_duration_seconds
    assert cluster.observed(family, "scheduled", kit.PROFILE, "podgroup") == 1


async def test_pods_beyond_the_quorum_fail_alone(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="2")
    cluster.group(min_count=2)
    cluster.pods("p", "q", "r")

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q"]
    assert cluster.message("r").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert cluster.condition().status == "True"
    assert cluster.attempts() == {"scheduled": 1}


@pytest.mark.parametrize("min_count", [None, 1])
async def test_a_group_of_one_pod_is_a_group(kit, min_count) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="1")
    cluster.group(min_count=min_count)
    cluster.pods("p")

    await cluster.cycle()
    assert cluster.placed() == {"p": "a"}
    assert cluster.attempts() == {"scheduled": 1}


async def test_pods_are_assumed_twice_and_reserved_once_in_the_end(kit) -> None:
    cluster = kit.Cluster(plugins=(Journal,))
    cluster.nodes(a="2")
    cluster.group(min_count=2)
    cluster.pods("p", "q")

    await cluster.cycle()
    assert Journal.entries == ["+p", "+q", "-q", "-p", "+p", "+q"]


# ---- a group that does not fit -------------------------------------------------------------------


async def test_a_gang_that_does_not_fit_leaves_the_table_as_it_was(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="2", b="3")
    cluster.pods("there", group="", node_name="a")
    cluster.group(min_count=6)
    cluster.pods("p", "q", "r", "s", "t", "u")
    before = cluster.columns()

    await cluster.cycle()
    assert cluster.columns() == before
    assert cluster.placed() == {"there": "a"}
    assert cluster.scheduler.cache.assumed_count == 0
    states = cluster.scheduler.cache.pod_group_states
    assert states.get("default/g").scheduled_count == 0
    why = "minCount (6) cannot be satisfied: 4 scheduled, 1 remaining"
    condition = cluster.condition()
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert condition.message == f"{why}, {NO_VICTIMS}"
    assert cluster.attempts() == {"unschedulable": 1}
    # Four fit, the fifth was tried, and the sixth was not: all the others fail with the group.
    notes = cluster.notes()
    fitted = f"pod group is unschedulable, {why}, {NO_VICTIMS}"
    assert [notes[name] for name in "pqrs"] == [fitted] * 4
    assert notes["t"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert notes["u"] == why


async def test_since_1_38_pods_of_a_gang_that_does_not_fit_name_the_gang(kit) -> None:
    cluster = kit.Cluster(version=V1_38)
    cluster.nodes(a="2")
    cluster.group(min_count=4)
    cluster.pods("p", "q", "r", "s")

    await cluster.cycle()
    assert cluster.placed() == {}
    text = "scheduling policy's minimum threshold (4) cannot be satisfied: 2 scheduled"
    assert cluster.condition().message.startswith(f"{text}, 1 unschedulable, 1 not-evaluated, ")
    named = 'parent pod group "g" is unschedulable'
    full = "0/1 nodes are available: 1 Insufficient cpu."
    assert [cluster.message(name) for name in "pqrs"] == [named, named, full, named]
    waiting = cluster.scheduler.queue.get("default/p"), cluster.scheduler.queue.get("default/r")
    rejectors = [queued.rejectors for queued in waiting]
    assert rejectors == [{"GangScheduling"}, {"NodeResourcesFit"}]


async def test_since_1_38_a_tree_that_is_too_deep_is_refused_in_all_its_conditions(kit) -> None:
    cluster = kit.Cluster(*kit.COMPOSITE, version=V1_38)
    cluster.nodes(a="2")
    workload = {"workloadRef": {"workloadName": "w"}}
    for number in range(6):
        parent = f"c{number - 1}" if number else None
        cluster.composite(f"c{number}", 1, parentCompositePodGroupName=parent, **workload)
    cluster.group(min_count=1, parentCompositePodGroupName="c5", **workload)
    cluster.pods("p")

    await cluster.cycle()
    text = 'hierarchy depth exceeds maximum allowed depth 4 at "compositepodgroup/default/c3"'
    assert cluster.message("p") == text
    conditions = [cluster.composite_condition(f"c{number}") for number in range(6)]
    told = {(one.reason, one.message) for one in conditions if one is not None}
    assert told == {("CompositePodGroupError", text)}
    assert (cluster.condition().reason, cluster.condition().message) == ("PodGroupError", text)


async def test_too_few_pods_are_not_tried_at_all(kit) -> None:
    cluster = kit.Cluster(plugins=(Journal,))
    cluster.nodes(a="4")
    cluster.group(min_count=2)
    cluster.pods("p", "q")
    # One of the two is deleted between the pop and the attempt.
    cluster.pods("q", metadata={"deletionTimestamp": "2024-01-01T00:00:00Z"})

    await cluster.cycle()
    assert not Journal.entries
    # kube-scheduler's DynamicResources expects that a pod has been tried, and its error counts.
    text = 'error in "DynamicResources" PodGroupPostFilter plugins: not found'
    assert cluster.condition().message == cluster.notes()["p"] == text
    assert cluster.attempts() == {"error": 1}


async def test_a_group_whose_pods_are_all_being_deleted_ends_its_attempt(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="4")
    cluster.group(min_count=1)
    cluster.pods("p", metadata={"deletionTimestamp": "2024-01-01T00:00:00Z"})

    await cluster.cycle()
    assert not cluster.placed()
    assert cluster.attempts() == {}
    cluster.pods("q")
    await cluster.cycle()
    assert cluster.placed() == {"q": "a"}


async def test_a_basic_group_with_no_pod_that_fits_is_unschedulable(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="1")
    cluster.group()
    cluster.pods("p", cpu="2")

    await cluster.cycle()
    condition = cluster.condition()
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert cluster.attempts() == {"unschedulable": 1}


async def test_a_group_once_scheduled_keeps_its_condition(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="2")
    cluster.group(min_count=2)
    cluster.pods("p", "q")
    await cluster.cycle()
    cluster.pods("late")
    await cluster.cycle()

    assert "late" not in cluster.placed()
    assert cluster.condition().status == "True"
    assert cluster.attempts() == {"scheduled": 1, "unschedulable": 1}


async def test_nominations_hold_after_the_dry_run(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="1", b="1")
    cluster.group(min_count=3)
    cluster.pods("p", "q", "r", status={"nominatedNodeName": "a"})
    queued = cluster.scheduler.queue.pop()
    nominator = cluster.scheduler.queue.nominator
    before = {q.uid: nominator.nominated_node_of(q.uid) for q in queued.queued_pods}
    assert set(before.values()) == {"a"}
    forgotten = []
    revert = cluster.scheduler.scheduling_cycle.unreserve_and_forget

    def unreserve_and_forget(attempt, node_name) -> None:
        forgotten.append(nominator.nominated_node_of(attempt.pod.uid))
        revert(attempt, node_name)

    cluster.scheduler.scheduling_cycle.unreserve_and_forget = unreserve_and_forget
    add, added = nominator.add_nominated_pod, []

    def add_nominated_pod(info, nominating) -> None:
        added.append((info.name, nominating))
        add(info, nominating)

    nominator.add_nominated_pod = add_nominated_pod
    await cluster.schedule_popped(queued)
    # Assumed pods are not nominated; those that are undone are so again, the last one first.
    assert forgotten == [None, None]
    assert added[:2] == [("q", NominatingInfo("a")), ("p", NominatingInfo("a"))]


# ---- what may not be tried -----------------------------------------------------------------------


async def test_pods_of_another_priority_than_the_group_fail_it(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="4")
    cluster.group(min_count=2, priority=5)
    cluster.pods("p", priority=5)
    cluster.pods("q", priority=4)

    await cluster.cycle()
    text = (
        "all pods in a single pod group should have the same priority as the pod group's priority, "
        "got 4 and 5"
    )
    assert cluster.message("p") == cluster.message("q") == text
    condition = cluster.condition()
    assert (condition.reason, condition.message) == ("SchedulerError", text)
    assert not cluster.placed()
    # Not an attempt: nothing was tried.
    assert cluster.attempts() == {}


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Status.error("out of ink"), ValueError("out of ink")])
async def test_an_error_about_one_pod_undoes_the_whole_group(kit, failure) -> None:
    cluster = kit.Cluster(plugins=(Journal,))
    cluster.nodes(a="4")
    cluster.group(min_count=1)
    cluster.pods("p", "q", "r")
    Journal.fails["q", 1] = failure
    before = cluster.columns()

    await cluster.cycle()
    assert cluster.columns() == before
    assert Journal.entries == ["+p", "+q", "-q", "-p"]
    error = 'running Reserve plugin "Journal": out of ink'
    text = f"failed to schedule other pod from a pod group: {error}"
    assert cluster.message("q") == error
    assert cluster.message("p") == cluster.message("r") == text
    condition = cluster.condition()
    assert (condition.reason, condition.message) == ("SchedulerError", text)
    assert cluster.attempts() == {"error": 1}


async def test_whatever_is_raised_nothing_stays_assumed(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="4")
    cluster.group(min_count=3)
    cluster.pods("p", "q", "r")
    before, tried = cluster.columns(), []
    cycle = cluster.scheduler.scheduling_cycle
    schedule_pod = cycle.schedule_pod

    async def fail_at_the_third(attempt):
        tried.append(attempt.pod.name)
        if len(tried) == 3:
            raise RuntimeError("a bug")
        return await schedule_pod(attempt)

    cycle.schedule_pod = fail_at_the_third
    with pytest.raises(RuntimeError, match="a bug"):
        await cluster.schedule_next()
    assert len(tried) == 3
    assert cluster.columns() == before
    assert cluster.scheduler.cache.assumed_count == 0


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Status.error("broken"), "running PlacementFeasible plugin: broken"),
        (ValueError("broken"), "running PlacementFeasible plugin: broken"),
        (
            Status.unresolvable("never"),
            "unexpected status code (UnschedulableAndUnresolvable) from PlacementFeasible plugin: "
            "never",
        ),
    ],
)
async def test_an_error_of_placement_feasible_fails_the_group(
    kit, monkeypatch, answer, text
) -> None:
    def placement_feasible(plugin, state, group, progress) -> Status:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(GangScheduling, "placement_feasible", placement_feasible)
    cluster = kit.Cluster()
    cluster.nodes(a="4")
    cluster.group(min_count=1)
    cluster.pods("p")

    await cluster.cycle()
    condition = cluster.condition()
    assert condition.reason == "SchedulerError"
    assert condition.message == f"failed to evaluate placement feasibility: {text}"
    assert cluster.attempts() == {"error": 1}


# ---- after the decision --------------------------------------------------------------------------


async def test_a_pod_that_cannot_be_reserved_again_comes_back_alone(kit) -> None:
    cluster = kit.Cluster(plugins=(Journal,))
    cluster.nodes(a="4")
    cluster.group(min_count=1)
    cluster.pods("p", "q", "r")
    Journal.fails["q", 2] = Status.unschedulable("taken")

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "r"]
    assert cluster.message("q") == "0/1 nodes are available: 1 taken."
    assert cluster.condition().status == "True"
    assert cluster.attempts() == {"scheduled": 1}


class Unwanted(PermitPlugin):
    """Rejects the pod named q."""

    def permit(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return Status.unschedulable("not this one") if pod.name == "q" else None


async def test_permit_decides_about_each_pod_after_the_group(kit) -> None:
    cluster = kit.Cluster(plugins=(Unwanted,))
    cluster.nodes(a="4")
    cluster.group(min_count=2)
    cluster.pods("p", "q", "r")

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "r"]
    assert cluster.message("q") == "0/1 nodes are available: 1 not this one."


class Unbindable(PreBindPlugin):
    """Fails for the pod named q."""

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return Status.error("no volume") if pod.name == "q" else None


async def test_a_pod_that_cannot_be_bound_does_not_undo_the_others(kit) -> None:
    cluster = kit.Cluster(plugins=(Unbindable,))
    cluster.nodes(a="4")
    cluster.group(min_count=3)
    cluster.pods("p", "q", "r")

    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "r"]
    assert "no volume" in cluster.message("q")
    table = cluster.scheduler.cache.table
    assert table.pod_count[table.rows["a"]] == 2
    # The others have their nodes: q is tried again as a group of one.
    cluster.advance(3)
    queued = cluster.scheduler.queue.pop()
    assert [pod.info.name for pod in queued.queued_pods] == ["q"]


async def test_a_condition_that_could_not_be_written_is_written_next_time(kit) -> None:
    cluster = kit.Cluster()
    cluster.nodes(a="1")
    cluster.group(min_count=2)
    cluster.pods("p", "q")
    patch_status, failed = cluster.api.patch_status, []

    async def fail_once(resource, namespace, name, patch):
        if not failed:
            failed.append(name)
            raise ApiError(500, "InternalError", "no quorum")
        return await patch_status(resource, namespace, name, patch)

    cluster.api.patch_status = fail_once
    await cluster.cycle()
    assert failed == ["g"]
    cluster.nodes(b="1")
    cluster.advance(30)
    await cluster.cycle()
    assert sorted(cluster.placed()) == ["p", "q"]
    assert cluster.condition().status == "True"
