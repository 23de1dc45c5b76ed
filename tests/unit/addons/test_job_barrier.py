"""JobBarrier: the quorum, roles, elastic members, and both modes."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.addons.job_barrier import JobBarrier
from proreus.framework import CycleState
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod


def member(name: str, least: str = "3", role: str = "worker", cpu: str = "1", **more: Any):
    annotations = {"proreus.dev/min-members": least} if least else {}
    annotations |= more.pop("annotations", {})
    labels = {"proreus.dev/job": more.pop("job", "train"), "proreus.dev/role": role}
    return make_pod(name, cpu, labels=labels, metadata={"annotations": annotations}, **more)


def cluster_of(nodes: int = 2, objects=(), **args: Any) -> Harness:
    profile = {
        "plugins": {
            "queueSort": {
                "disabled": [{"name": "PrioritySort"}],
                "enabled": [{"name": "JobBarrier"}],
            },
            "multiPoint": {"enabled": [{"name": "JobBarrier"}]},
        },
        "pluginConfig": [{"name": "JobBarrier", "args": {"waitSeconds": "30s", **args}}],
    }
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    made = [make_node(f"n{number}", "4") for number in range(nodes)]
    return Harness([JobBarrier], made, objects, config=config)


def states(cluster: Harness, *names: str) -> list[str]:
    return [cluster.outcome(name).state for name in names]


# ---- the barrier ---------------------------------------------------------------------------------


def test_the_last_member_of_the_quorum_releases_the_others() -> None:
    cluster = cluster_of()
    cluster.add(member("a"), member("b"))
    cluster.schedule_all()
    assert states(cluster, "a", "b") == ["waiting", "waiting"]
    cluster.schedule(member("c"))
    assert states(cluster, "a", "b", "c") == ["bound"] * 3


def test_each_role_may_have_a_minimum() -> None:
    cluster = cluster_of()
    roles = {"proreus.dev/min-members-by-role": "master=1, worker=2"}
    for number in range(3):
        cluster.add(member(f"w{number}", "", annotations=roles))
    cluster.schedule_all()
    assert states(cluster, "w0", "w1", "w2") == ["waiting", "waiting", "unschedulable"]
    cluster.schedule(member("m", "", "master", annotations=roles))
    cluster.schedule_all()
    assert states(cluster, "m", "w0", "w1", "w2") == ["bound"] * 4


def test_after_the_time_is_over_all_give_up_their_nodes() -> None:
    cluster = cluster_of(1)
    cluster.add(member("a", cpu="2"), member("b", cpu="2"))
    cluster.schedule_all()
    assert not cluster.schedule(make_pod("big", "4")).bound
    cluster.advance(31)
    assert states(cluster, "a", "b") == ["unschedulable", "unschedulable"]
    assert cluster.outcome("a").rejected_by == {"JobBarrier"}
    cluster.schedule_all()
    assert cluster.outcome("big").bound


def test_members_that_a_former_instance_holds_count() -> None:
    handle = FakeHandle()
    held = [handle.hold(member(name), {"JobBarrier": 60}) for name in ("a", "b")]
    barrier, state, last = make_plugin(JobBarrier, handle), CycleState(), member("c")
    barrier.reserve(state, last, "n0")
    assert barrier.permit(state, last, "n0") is None
    assert [one.pending_plugins() for one in held] == [[], []]


def test_pods_without_a_job_pass() -> None:
    assert cluster_of().schedule(make_pod("web")).bound


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"proreus.dev/min-members": "all"}, 'must be a whole number, not "all"'),
        ({"proreus.dev/min-members-by-role": "master"}, 'must be role=number,…, not "master"'),
    ],
)
def test_wrong_annotations_are_named_until_they_change(
    annotations: dict[str, str], message: str
) -> None:
    cluster = cluster_of()
    assert message in cluster.schedule(member("a", "", annotations=annotations)).message
    for key in annotations:
        cluster.patch("Pod", "a", {"metadata": {"annotations": {key: None}}})
    cluster.advance(2)
    assert cluster.schedule("a").bound, "without a minimum, one member is a job"


# ---- elastic members -----------------------------------------------------------------------------


def test_elastic_members_hold_nothing_before_the_barrier_was_reached() -> None:
    cluster = cluster_of()
    roles = {"proreus.dev/min-members-by-role": "master=1"}
    cluster.add(*(member(f"w{number}", "2", annotations=roles) for number in range(3)))
    cluster.schedule_all()
    assert states(cluster, "w0", "w1", "w2") == ["waiting", "unschedulable", "unschedulable"]
    assert "has not started: its other pods come first" in cluster.outcome("w1").message


def test_they_join_one_by_one_afterwards() -> None:
    cluster = cluster_of(1)
    cluster.add(*(member(f"p{number}", "2") for number in range(6)))
    cluster.schedule_all()
    names = [f"p{number}" for number in range(6)]
    assert states(cluster, *names).count("bound") == 4, "as many as fit: nobody waits for the rest"


def test_they_come_after_all_others_of_their_priority() -> None:
    running = [member(name, "2", node_name="n0") for name in ("a", "b")]
    cluster = cluster_of(1, running)
    cluster.add(member("elastic", "2"), make_pod("plain", "1"), make_pod("low", "1", priority=-1))
    assert [one.pod for one in cluster.schedule_all()] == [
        "default/plain",
        "default/elastic",
        "default/low",
    ]


# ---- restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "state"), [("start", "bound"), ("always", "waiting")])
def test_a_single_restart_passes_only_in_mode_start(mode: str, state: str) -> None:
    running = [member(name, node_name="n0") for name in ("a", "b", "c")]
    cluster = cluster_of(2, running, mode=mode)
    cluster.remove("Pod", "a")
    cluster.remove("Pod", "b")
    assert cluster.schedule(member("again")).state == state
    assert cluster.schedule(member("b2")).state == "bound", "the quorum is there again"
    assert cluster.outcome("again").bound


def test_a_job_is_forgotten_with_its_last_pod() -> None:
    cluster = cluster_of(2, [member("a", "1", node_name="n0")])
    plugin = cluster.plugin(JobBarrier)
    assert len(plugin._jobs) == 1
    cluster.patch("Pod", "a", {"status": {"phase": "Succeeded"}})
    assert len(plugin._jobs) == 0
    cluster.schedule(member("p", "2"))
    cluster.remove("Pod", "p")
    assert len(plugin._jobs) == 0


def test_a_job_is_forgotten_when_its_last_pod_becomes_one_of_another() -> None:
    cluster = cluster_of(2, [member("a", "1", node_name="n0")])
    plugin = cluster.plugin(JobBarrier)
    cluster.patch("Pod", "a", {"metadata": {"labels": {"proreus.dev/job": "other"}}})
    assert list(plugin._jobs._jobs) == ["default/other"]
    cluster.remove("Pod", "a")
    assert len(plugin._jobs) == 0
