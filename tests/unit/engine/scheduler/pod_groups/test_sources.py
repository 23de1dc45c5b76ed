"""Groups that a plugin names: queued, tried and bound as one, without any PodGroup of the API."""

from __future__ import annotations

import pytest

from proreus.framework import (
    Code,
    PlacementFeasiblePlugin,
    PlacementProgress,
    PodGroupInfo,
    PodGroupSourcePlugin,
    PreEnqueuePlugin,
    Status,
)
from proreus.objects import PODS, Pod
from proreus.objects.meta import ObjectMeta
from proreus.objects.scheduling import (
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from proreus.testing import Harness, make_node, make_pod


def group_object(name: str, minimum: int) -> PodGroup:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(minimum))
    spec = PodGroupSpec(scheduling_policy=policy)
    return PodGroup(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


class Teams(PodGroupSourcePlugin, PlacementFeasiblePlugin, PreEnqueuePlugin):
    """Pods with the label ``team`` are placed together, as many as ``size`` says."""

    def __init__(self, args: object, handle) -> None:
        super().__init__(args, handle)
        handle.on_change(PODS, self._pod_changed)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and (name := self.pod_group_name(new)):
            size = int(new.metadata.labels["size"])
            self.handle.put_pod_group(group_object(name, size))

    def pod_group_name(self, pod: Pod) -> str:
        team = pod.metadata.labels.get("team", "")
        return f"example.com/{team}" if team else ""

    def pre_enqueue(self, pod) -> Status | None:
        return None

    def placement_feasible(
        self, state, group: PodGroupInfo, progress: PlacementProgress
    ) -> Status | None:
        needed = group.group.min_count
        if progress.remaining + progress.scheduled < needed:
            return Status.unschedulable(f"only {progress.scheduled} of {needed} fit")
        return Status(Code.WAIT) if progress.scheduled < needed else None


def member(name: str, team: str = "a", size: int = 3, cpu: str = "1", **more):
    return make_pod(name, cpu, labels={"team": team, "size": str(size)}, **more)


def cluster_of(cpus: str = "3", **more) -> Harness:
    return Harness([Teams], [make_node("n0", cpus)], **more)


def nodes_of(cluster: Harness, *names: str) -> list[str]:
    return [cluster.pod(name).spec.node_name for name in names]


NAMES = ("p0", "p1", "p2")


def add_members(cluster: Harness, **more) -> None:
    for name in NAMES:
        cluster.add(member(name, **more))


def test_a_group_is_bound_as_a_whole() -> None:
    cluster = cluster_of()
    add_members(cluster)
    cluster.schedule_all()
    assert nodes_of(cluster, *NAMES) == ["n0"] * 3


def test_a_group_that_does_not_fit_holds_nothing_and_names_the_pod_that_does_not() -> None:
    cluster = cluster_of("2")
    add_members(cluster)
    cluster.schedule_all()
    assert nodes_of(cluster, *NAMES) == [""] * 3
    assert not list(cluster.scheduler.cache.assumed_pods())
    assert cluster.node("n0").requested["cpu"] == 0
    for name in NAMES:
        (condition,) = cluster.pod(name).status.conditions
        assert (condition.status, condition.reason) == ("False", "Unschedulable")
    message = cluster.pod("p0").status.conditions[0].message
    assert "only 2 of 3 fit" in message
    assert "pod default/p2: 0/1 nodes are available: 1 Insufficient cpu" in message


def test_a_rejected_group_waits_for_an_event_that_helps_it() -> None:
    cluster = cluster_of("2")
    add_members(cluster)
    cluster.schedule_all()
    cluster.advance(60)
    assert {cluster.queue_of(name) for name in NAMES} == {"unschedulable"}
    cluster.add(make_node("n1", "1"))
    cluster.schedule_all()
    assert sorted(nodes_of(cluster, *NAMES)) == ["n0", "n0", "n1"]


def test_a_pod_that_joins_a_rejected_group_has_it_tried_again() -> None:
    cluster = cluster_of("3")
    cluster.add(member("big", cpu="9"), member("p0"), member("p1"))
    cluster.schedule_all()
    assert nodes_of(cluster, "p0", "p1") == ["", ""]
    cluster.add(member("p2"))
    cluster.advance(60)
    cluster.schedule_all()
    assert nodes_of(cluster, *NAMES) == ["n0"] * 3


def test_pods_of_other_groups_and_of_none_are_not_held_up() -> None:
    cluster = cluster_of("2")
    add_members(cluster)
    cluster.add(make_pod("alone", "1"), member("single", "b", 1))
    cluster.schedule_all()
    assert nodes_of(cluster, "alone", "single") == ["n0", "n0"]


def test_a_pod_that_changes_its_group_leaves_the_other_one() -> None:
    cluster = cluster_of("3")
    cluster.add(member("p0"), member("p1"))
    cluster.schedule_all()
    assert nodes_of(cluster, "p0", "p1") == ["", ""]
    cluster.patch("Pod", "p1", {"metadata": {"labels": {"team": "b", "size": "1"}}})
    cluster.advance(60)
    cluster.schedule_all()
    assert nodes_of(cluster, "p0", "p1") == ["", "n0"]
    cluster.scheduler.queue.validate()


def test_a_deleted_pod_leaves_its_group() -> None:
    cluster = cluster_of("2")
    add_members(cluster)
    cluster.schedule_all()
    for name in NAMES:
        cluster.remove("Pod", name)
    assert cluster.scheduler.cache.pod_group_states.get("default/example.com/a") is None
    cluster.scheduler.queue.validate()


def test_a_group_needs_a_name_that_no_object_of_the_api_can_have() -> None:
    cluster = cluster_of()
    handle = cluster.plugin(Teams).handle
    with pytest.raises(ValueError, match="slash"):
        handle.put_pod_group(group_object("a", 1))


def test_a_group_that_is_taken_back_is_not_tried() -> None:
    cluster = cluster_of("3")
    add_members(cluster)
    handle = cluster.plugin(Teams).handle
    handle.remove_pod_group(group_object("example.com/a", 3))
    handle.remove_pod_group(group_object("example.com/unknown", 3))
    cluster.schedule_all()
    assert nodes_of(cluster, *NAMES) == [""] * 3
    handle.put_pod_group(group_object("example.com/a", 3))
    cluster.schedule_all()
    assert nodes_of(cluster, *NAMES) == ["n0"] * 3


def test_a_plugin_that_fails_to_name_a_group_leaves_the_pod_alone(caplog) -> None:
    class Broken(Teams):
        def pod_group_name(self, pod: Pod) -> str:
            raise ValueError("broken")

        def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
            pass

    cluster = Harness([Broken], [make_node("n0", "3")])
    cluster.add(member("p0"))
    cluster.schedule_all()
    assert nodes_of(cluster, "p0") == ["n0"]
    assert "pod_group_name raised" in caplog.text


def test_a_group_that_fails_again_and_again_writes_no_more_than_every_ten_seconds() -> None:
    cluster = cluster_of("1")
    add_members(cluster, size=4)
    cluster.add(member("p3", size=4))
    cluster.schedule_all()
    first = cluster.pod("p0").status.conditions[0].message
    assert "only 1 of 4 fit" in first
    cluster.add(make_node("n1", "1"))
    cluster.advance(3)
    cluster.schedule_all()
    assert nodes_of(cluster, *NAMES) == [""] * 3
    assert cluster.pod("p0").status.conditions[0].message == first
    cluster.advance(20)
    cluster.add(make_node("n2", "1"))
    cluster.advance(3)
    cluster.schedule_all()
    assert "only 3 of 4 fit" in cluster.pod("p0").status.conditions[0].message


def bound(name: str, cpu: str):
    return make_pod(name, cpu, node_name="n0")


def attempts(cluster: Harness) -> float:
    labels = ("unschedulable", "default-scheduler")
    return cluster.metric("scheduler_podgroup_schedule_attempts_total", *labels)


def try_backing_off(cluster: Harness) -> None:
    """Schedule what a scheduler would that has nothing else to do: pods in back-off as well."""
    queue = cluster.scheduler.queue
    queue.activate([f"default/{name}" for name in NAMES if cluster.queue_of(name) == "backoff"])
    cluster.schedule_all()


def queue_of_members(cluster: Harness) -> str:
    (queue,) = {cluster.queue_of(name) for name in NAMES}
    return queue


def test_a_group_is_tried_as_soon_as_the_pods_that_went_left_room_for_what_it_lacked() -> None:
    cluster = cluster_of("4")
    cluster.add(*(bound(f"b{number}", "1") for number in range(3)))
    add_members(cluster)
    cluster.schedule_all()
    cluster.remove("Pod", "b0")
    assert queue_of_members(cluster) == "unschedulable"
    cluster.remove("Pod", "b1")
    try_backing_off(cluster)
    assert nodes_of(cluster, *NAMES) == ["n0"] * 3


def test_one_pod_may_leave_room_for_several() -> None:
    cluster = cluster_of("3")
    cluster.add(bound("big", "2"))
    add_members(cluster)
    cluster.schedule_all()
    cluster.remove("Pod", "big")
    try_backing_off(cluster)
    assert nodes_of(cluster, *NAMES) == ["n0"] * 3


def test_pods_of_other_sizes_that_were_not_tried_are_not_counted() -> None:
    cluster = cluster_of("4")
    cluster.add(bound("b0", "3"), bound("b1", "1"))
    cluster.add(member("p0", cpu="1"), member("p1", cpu="100m"), member("p2", cpu="100m"))
    cluster.schedule_all()
    cluster.remove("Pod", "b1")
    assert queue_of_members(cluster) == "backoff"


def test_a_group_that_lacks_more_than_the_events_gave_is_tried_within_a_second() -> None:
    cluster = cluster_of("4")
    cluster.add(*(bound(f"b{number}", "1") for number in range(4)))
    add_members(cluster)
    cluster.schedule_all()
    before = attempts(cluster)
    cluster.remove("Pod", "b0")
    assert queue_of_members(cluster) == "unschedulable"
    cluster.advance(1)
    try_backing_off(cluster)
    assert attempts(cluster) == before + 1


def test_a_group_is_tried_at_a_few_of_many_events_only() -> None:
    cluster = cluster_of("1")
    add_members(cluster, size=4)
    cluster.add(member("p3", size=4))
    cluster.schedule_all()
    before = attempts(cluster)
    for number in range(20):
        cluster.add(make_node(f"small{number}", "1"))
        cluster.add(make_pod(f"fills{number}", "1", node_name=f"small{number}"))
        try_backing_off(cluster)
    assert attempts(cluster) == before + 3
    cluster.add(make_node("n1", "4"))
    cluster.advance(2)
    try_backing_off(cluster)
    assert all(nodes_of(cluster, *NAMES, "p3"))
