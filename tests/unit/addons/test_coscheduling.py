from __future__ import annotations

import pytest

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import (
    OLDER_LABEL,
    POD_GROUP_LABEL,
    group_key,
    membership_of,
)
from proreus.framework import ConfigError, CycleState
from proreus.testing import Harness, make_node, make_pod


def gang(name: str, members: int, created: str = "2023-11-14T22:00:00Z", **spec: object) -> dict:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
        "spec": {"minMember": members, **spec},
    }


def member(name: str, group: str = "g", cpu: str = "1", **more: object):
    return make_pod(name, cpu, labels={POD_GROUP_LABEL: group}, **more)


def harness(*objects, nodes=1, cpus: str = "4", **args: object) -> Harness:
    made = [make_node(f"n{number}", cpus) for number in range(nodes)]
    return Harness([Coscheduling], made, objects, args={"Coscheduling": args})


def bound(cluster: Harness, *names: str) -> list[str]:
    return [name for name in names if cluster.pod(name).spec.node_name]


def test_members_wait_for_the_quorum_and_are_bound_together() -> None:
    cluster = harness(gang("g", 3))
    for number in range(3):
        cluster.add(member(f"p{number}"))
    cluster.schedule("p0")
    cluster.schedule("p1")
    assert cluster.waiting("p0")
    assert bound(cluster, "p0", "p1") == []
    cluster.schedule("p2")
    assert bound(cluster, "p0", "p1", "p2") == ["p0", "p1", "p2"]


def test_a_member_that_fits_nowhere_takes_the_others_with_it() -> None:
    cluster = harness(gang("g", 3), cpus="2")
    for number in range(3):
        cluster.add(member(f"p{number}"))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1", "p2") == []
    assert not list(cluster.scheduler.cache.assumed_pods())
    assert all(cluster.queue_of(f"p{number}") != "" for number in range(3))


def test_groups_that_do_not_fit_let_the_next_one_start_after_a_release() -> None:
    # Three groups fit, and 6 pods of the other two.
    groups = [gang(f"g{number}", 10) for number in range(5)]
    cluster = harness(*groups, nodes=36, cpus="1", permitWaitingTimeSeconds=10)
    members = [[f"g{group}-{number}" for number in range(10)] for group in range(5)]
    for number in range(10):
        for group, names in enumerate(members):
            cluster.add(member(names[number], f"g{group}"))
    cluster.schedule_all()
    running = [names for names in members if len(bound(cluster, *names)) == 10]
    others = [names for names in members if names not in running]
    assert len(running) == 3
    # They are not tried without end, and hold nothing.
    assert not {cluster.queue_of(name) for names in others for name in names} & {"active", ""}
    assert not list(cluster.scheduler.waiting_pods)
    for name in running[0]:
        cluster.remove("Pod", name)
    for _ in range(12):  # two seconds longer than the longest back-off
        cluster.advance(1)
        cluster.schedule_all()
    assert sorted(len(bound(cluster, *names)) for names in others) == [0, 10]


def test_the_fourth_pod_left_over_by_failed_attempts_begins_no_other_one() -> None:
    cluster = harness(gang("g", 8), cpus="1")
    for number in range(8):
        cluster.add(member(f"p{number}"))
    cluster.schedule_all()
    reasons = [cluster.outcome(f"p{number}").message for number in range(8)]
    assert any("failed while pod" in reason for reason in reasons), reasons
    assert not list(cluster.scheduler.waiting_pods)


@pytest.mark.parametrize(("assigned", "rejects"), [(9, False), (8, True)])
def test_a_group_close_to_its_quorum_is_not_rejected(assigned: int, rejects: bool) -> None:
    cluster = harness(gang("g", 10), cpus=str(assigned))
    for number in range(10):
        cluster.add(member(f"p{number}"))
    for number in range(assigned + 1):
        cluster.schedule(f"p{number}")
    waiting = len(list(cluster.scheduler.waiting_pods))
    assert waiting == (0 if rejects else assigned)


def test_a_pod_labelled_as_a_member_while_it_runs_is_not_counted_as_assigned() -> None:
    cluster = harness(gang("g", 2), gang("h", 1))
    cluster.schedule(member("p0", "h"))
    cluster.patch("Pod", "p0", {"metadata": {"labels": {POD_GROUP_LABEL: "g"}}})
    cluster.schedule(member("p1"))
    assert cluster.waiting("p1")


@pytest.mark.parametrize(("gated", "tried"), [(1, True), (2, False)])
def test_members_that_are_gated_do_not_count(gated: int, tried: bool) -> None:
    cluster = harness(gang("g", 3))
    for number in range(4):
        gates = [{"name": "x/y"}] if number < gated else []
        cluster.add(member(f"p{number}", spec={"schedulingGates": gates}))
    outcome = cluster.schedule("p3")
    assert ("cannot find enough sibling pods" in str(outcome)) != tried


def test_a_group_without_enough_members_is_not_tried_until_a_change() -> None:
    cluster = harness(gang("g", 2))
    assert "cannot find enough sibling pods" in str(cluster.schedule(member("p")))
    cluster.add(gang("g", 1))
    assert cluster.queue_of("p") in ("active", "backoff")
    assert cluster.schedule("p").bound


def test_the_wait_ends() -> None:
    cluster = harness(gang("g", 2, scheduleTimeoutSeconds=5))
    cluster.add(member("p"))
    cluster.add(member("q", cpu="9"))
    cluster.schedule("p")
    assert cluster.waiting("p")
    cluster.advance(6)
    with pytest.raises(LookupError):
        cluster.waiting("p")
    assert not list(cluster.scheduler.cache.assumed_pods())


def test_groups_that_failed_go_behind_others() -> None:
    cluster = harness(gang("g1", 2, "2023-11-14T22:00:00Z"), gang("g2", 1, "2023-11-14T22:10:00Z"))
    plugin = cluster.plugin(Coscheduling)
    cluster.add(member("a", "g1"))
    cluster.add(member("b", "g2"))
    queued = {one.info.name: one for one in cluster.scheduler.queue.active_pods()}
    a, b = plugin.sort_key(queued["a"]), plugin.sort_key(queued["b"])
    assert a < b
    plugin._fail(plugin.group(cluster.pod("a")), "because")
    assert b < a


def test_a_group_in_its_back_off_is_not_tried() -> None:
    cluster = harness(gang("g", 2), cpus="1", podGroupBackoffSeconds=20)
    cluster.add(member("p"))
    cluster.add(member("q"))
    cluster.schedule_all()
    cluster.add(make_pod("other", node_name="n0"))
    assert "failed recently" in str(cluster.schedule("p"))


def test_minimal_resources_have_to_be_free_in_the_cluster() -> None:
    cluster = harness(gang("g", 1, minResources={"cpu": "9"}), nodes=2)
    assert "resource gap: cpu: 1000" in str(cluster.schedule(member("p")))
    cluster.add(gang("g", 1, minResources={"cpu": "8"}))
    assert cluster.schedule("p").bound


def test_room_wakes_the_pods_of_volcano_that_lack_minimal_resources() -> None:
    group = gang("g", 1, minResources={"cpu": "5"})
    cluster = harness(group | {"apiVersion": "scheduling.volcano.sh/v1beta1"}, nodes=2)
    cluster.add(make_pod("other", "4", node_name="n0"))
    annotations = {"scheduling.k8s.io/group-name": "g"}
    pod = make_pod("p", "1", metadata={"annotations": annotations})
    assert "resource gap: cpu: 1000" in str(cluster.schedule(pod))
    cluster.remove("Pod", "other")
    cluster.advance(10)
    cluster.schedule_all()
    assert bound(cluster, "p") == ["p"]


def test_an_amount_that_is_no_quantity_is_the_error_of_its_group_alone() -> None:
    cluster = harness(gang("g", 1, minResources={"cpu": "lots"}), nodes=2)
    cluster.add(member("p"), make_pod("other"))
    cluster.schedule_all()
    assert bound(cluster, "other") == ["other"]
    outcome = str(cluster.schedule("p"))
    assert "podGroup default/g: spec.minResources.cpu: quantity 'lots' is not a number" in outcome
    cluster.add(gang("g", 1, minResources={"cpu": "1"}))
    assert cluster.schedule("p").bound


def test_pods_without_group_or_podgroup() -> None:
    cluster = harness()
    assert cluster.schedule(make_pod("p")).bound
    outcome = cluster.schedule(member("q"))
    assert "PodGroup not found" in str(outcome)


@pytest.mark.parametrize(
    ("labels", "key", "minimum"),
    [
        ({}, "", None),
        ({POD_GROUP_LABEL: "a", OLDER_LABEL: "b"}, "default/a", None),
        ({OLDER_LABEL: "b"}, "default/b", None),
        ({f"{OLDER_LABEL}/name": "c", f"{OLDER_LABEL}/min-available": "3"}, "default/c", 3),
        ({f"{OLDER_LABEL}/name": "c", f"{OLDER_LABEL}/min-available": "x"}, "", None),
    ],
)
def test_the_group_of_a_pod(labels: dict, key: str, minimum: int | None) -> None:
    pod = make_pod("p", labels=labels).pod
    assert group_key(pod) == key
    membership = membership_of(pod)
    group = membership and membership.virtual
    assert (group and group.min_member) == minimum


@pytest.mark.parametrize(
    "args",
    [
        {"permitWaitingTimeSeconds": -1},
        {"podGroupBackoffSeconds": -1},
        {"podGroupRejectPercentage": 101},
    ],
)
def test_invalid_arguments_are_refused(args: dict) -> None:
    with pytest.raises(ConfigError):
        harness(**args)


def test_nothing_is_kept_of_groups_that_are_gone() -> None:
    cluster = harness(gang("g", 1))
    assert cluster.schedule(member("p")).bound
    cluster.remove("Pod", "p")
    cluster.remove("PodGroup", "g")
    assert not cluster.plugin(Coscheduling)._records._records


@pytest.mark.parametrize("with_object", [False, True])
def test_a_group_is_forgotten_with_a_last_pod_that_waits(with_object: bool) -> None:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g"}
    labels |= {"pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    cluster = harness(*([gang("g", 2)] if with_object else []))
    records = cluster.plugin(Coscheduling)._records
    cluster.add(*(member(name) if with_object else make_pod(name, labels=labels) for name in "pq"))
    cluster.schedule("p")
    assert cluster.waiting("p")
    cluster.remove("Pod", "q")
    if with_object:
        cluster.remove("PodGroup", "g")
    cluster.remove("Pod", "p")
    cluster.schedule_all()
    assert not records._records


def test_a_member_that_is_bound_although_its_binding_failed_stays_assigned() -> None:
    cluster = harness(gang("g", 2))
    cluster.add(member("p0"), member("p1"))
    cluster.schedule("p0")
    [waiting] = cluster.scheduler.waiting_pods
    profile = cluster.scheduler.profiles["default-scheduler"]
    [plugin] = [one for one in profile.plugins if isinstance(one, Coscheduling)]
    cluster.patch("Pod", "p0", {"spec": {"nodeName": "n0"}})
    plugin.unreserve(CycleState(), waiting.pod, "n0")
    cluster.schedule("p1")
    assert bound(cluster, "p1") == ["p1"]
