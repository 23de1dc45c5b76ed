"""Coscheduling in mode ``plan``: groups as a whole, whoever's labels name them."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.addons.coscheduling import Coscheduling, PlannedCoscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL, membership_of
from proreus.testing import Harness, make_node, make_pod

KOORDINATOR = "gang.scheduling.koordinator.sh"


def gang(name: str, members: int, group: str = "scheduling.x-k8s.io/v1alpha1", **spec: Any) -> dict:
    return {
        "apiVersion": group,
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": "2023-11-14T22:00:00Z",
        },
        "spec": {"minMember": members, **spec},
    }


def volcano(name: str, members: int, **spec: Any) -> dict:
    return gang(name, members, "scheduling.volcano.sh/v1beta1", **spec)


def member(name: str, group: str = "g", cpu: str = "1", **more: Any):
    return make_pod(name, cpu, labels={POD_GROUP_LABEL: group}, **more)


def annotated(name: str, annotations: dict[str, str], cpu: str = "1"):
    return make_pod(name, cpu, metadata={"annotations": annotations})


def harness(*objects: Any, nodes: int = 1, cpus: str = "4", **args: Any) -> Harness:
    made = [make_node(f"n{number}", cpus) for number in range(nodes)]
    return Harness([Coscheduling], made, objects, args={"Coscheduling": {"mode": "plan", **args}})


def bound(cluster: Harness, *names: str) -> list[str]:
    return [name for name in names if cluster.pod(name).spec.node_name]


def message(cluster: Harness, name: str) -> str:
    return " ".join(one.message for one in cluster.pod(name).status.conditions)


def validate(cluster: Harness) -> None:
    cluster.scheduler.queue.validate()
    cluster.scheduler.cache.validate()


def test_a_group_is_bound_as_a_whole_and_never_waits_on_permit() -> None:
    cluster = harness(gang("g", 3))
    cluster.add(member("p0"), member("p1"))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == []
    assert not list(cluster.scheduler.waiting_pods)
    cluster.add(member("p2"))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1", "p2") == ["p0", "p1", "p2"]
    validate(cluster)


def test_a_group_that_does_not_fit_holds_nothing_and_says_which_member_and_why() -> None:
    cluster = harness(gang("g", 3), cpus="2")
    cluster.add(*(member(f"p{number}") for number in range(3)))
    cluster.schedule_all()
    assert cluster.node("n0").requested["cpu"] == 0
    for name in ("p0", "p1", "p2"):
        (condition,) = cluster.pod(name).status.conditions
        assert (condition.type, condition.status) == ("PodScheduled", "False")
        assert condition.reason == "Unschedulable"
    assert "3 pods are needed together, 2 fit" in message(cluster, "p0")
    assert "pod default/p2: 0/1 nodes are available: 1 Insufficient cpu." in message(cluster, "p0")


def test_one_group_after_another_gets_the_room_never_halves_of_both() -> None:
    cluster = harness(gang("a", 3), gang("b", 3), nodes=4, cpus="1")
    for number in range(3):
        cluster.add(member(f"a{number}", "a"), member(f"b{number}", "b"))
    cluster.schedule_all()
    cluster.advance(30)
    cluster.schedule_all()
    assert len(bound(cluster, "a0", "a1", "a2")) == 3
    assert bound(cluster, "b0", "b1", "b2") == []
    for number in range(3):
        cluster.remove("Pod", f"a{number}")
    cluster.schedule_all()
    assert len(bound(cluster, "b0", "b1", "b2")) == 3
    validate(cluster)


def test_a_failed_group_does_not_delay_others() -> None:
    cluster = harness(gang("big", 2), gang("small", 2), cpus="2")
    cluster.add(member("b0", "big", "2"), member("b1", "big", "2"))
    cluster.add(member("s0", "small"), member("s1", "small"))
    cluster.schedule_all()
    assert bound(cluster, "b0", "b1", "s0", "s1") == ["s0", "s1"]


@pytest.mark.parametrize(("gated", "fits"), [(1, True), (2, False)])
def test_members_that_are_gated_do_not_count_and_hold_up_nobody(gated: int, fits: bool) -> None:
    cluster = harness(gang("g", 3))
    for number in range(4):
        gates = [{"name": "x/y"}] if number < gated else []
        cluster.add(member(f"p{number}", spec={"schedulingGates": gates}))
    cluster.schedule_all()
    assert bool(bound(cluster, "p2", "p3")) == fits
    for number in range(gated):
        cluster.patch("Pod", f"p{number}", {"spec": {"schedulingGates": []}})
    cluster.schedule_all()
    assert len(bound(cluster, "p0", "p1", "p2", "p3")) == 4
    validate(cluster)


def test_surplus_goes_behind_groups_that_lack_their_minimum() -> None:
    cluster = harness(gang("a", 2), gang("b", 2), nodes=4, cpus="1")
    for number in range(4):
        cluster.add(member(f"a{number}", "a"))
    cluster.add(member("b0", "b"), member("b1", "b"))
    cluster.schedule_all()
    assert len(bound(cluster, "b0", "b1")) == 2
    assert len(bound(cluster, "a0", "a1", "a2", "a3")) == 2
    cluster.add(make_node("more", "8"))
    cluster.advance(30)
    cluster.schedule_all()
    assert len(bound(cluster, "a0", "a1", "a2", "a3")) == 4
    validate(cluster)


def test_a_member_that_is_replaced_starts_beside_the_others() -> None:
    cluster = harness(gang("g", 2))
    cluster.add(member("p0"), member("p1"))
    cluster.schedule_all()
    cluster.remove("Pod", "p0")
    cluster.add(member("p2"))
    cluster.schedule_all()
    assert bound(cluster, "p1", "p2") == ["p1", "p2"]


def test_a_group_whose_minimum_is_lowered_is_tried_again() -> None:
    cluster = harness(gang("g", 3), cpus="2")
    cluster.add(*(member(f"p{number}") for number in range(3)))
    cluster.schedule_all()
    cluster.add(gang("g", 2))
    cluster.advance(30)
    cluster.schedule_all()
    assert len(bound(cluster, "p0", "p1", "p2")) == 2


def test_pods_wait_for_their_pod_group() -> None:
    cluster = harness()
    cluster.add(member("p0"))
    cluster.schedule_all()
    assert bound(cluster, "p0") == []
    cluster.add(gang("g", 1))
    cluster.schedule_all()
    assert bound(cluster, "p0") == ["p0"]
    cluster.remove("Pod", "p0")
    cluster.remove("PodGroup", "g")
    validate(cluster)


def test_resources_that_the_cluster_lacks_are_said_once() -> None:
    cluster = harness(gang("g", 2, minResources={"cpu": "9"}))
    cluster.add(member("p0"), member("p1"))
    cluster.schedule_all()
    assert "resource gap: cpu: 5000" in message(cluster, "p0")
    assert bound(cluster, "p0", "p1") == []


def test_an_amount_that_is_no_quantity_is_the_error_of_its_group_alone() -> None:
    cluster = harness(gang("g", 1, minResources={"cpu": "lots"}))
    cluster.add(member("p0"), make_pod("other"))
    cluster.schedule_all()
    assert "podGroup default/g: spec.minResources.cpu: quantity 'lots'" in message(cluster, "p0")
    assert bound(cluster, "p0", "other") == ["other"]


def test_a_group_of_koordinators_annotations() -> None:
    annotations = {
        f"{KOORDINATOR}/name": "g",
        f"{KOORDINATOR}/min-available": "2",
        f"{KOORDINATOR}/total-number": "3",
        f"{KOORDINATOR}/waiting-time": "30s",
    }
    cluster = harness()
    cluster.add(annotated("p0", annotations))
    cluster.schedule_all()
    assert bound(cluster, "p0") == []
    cluster.add(*(annotated(f"p{number}", annotations) for number in (1, 2, 3)))
    cluster.schedule_all()
    names = ("p0", "p1", "p2", "p3")
    assert len(bound(cluster, *names)) == 3
    (left,) = set(names) - set(bound(cluster, *names))
    assert "has its 3 pods" in message(cluster, left)
    virtual = membership_of(cluster.pod("p0")).virtual
    assert (virtual.min_member, virtual.maximum, virtual.timeout_seconds) == (2, 3, 30.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5m", 90),
        ("0", 600),
        ("-5m", 600),
        ("5", 600),
        ("1d", 600),
        ("9" * 9_000 + "s", 600),
    ],
)
def test_how_long_koordinators_gangs_wait(text: str, seconds: float) -> None:
    annotations = {
        f"{KOORDINATOR}/name": "g",
        f"{KOORDINATOR}/min-available": "2",
        f"{KOORDINATOR}/waiting-time": text,
    }
    virtual = membership_of(annotated("p", annotations).pod).virtual
    assert virtual.timeout_seconds == seconds


def test_a_gang_that_was_complete_once_lets_single_pods_start() -> None:
    annotations = {f"{KOORDINATOR}/name": "g", f"{KOORDINATOR}/min-available": "2"}
    cluster = harness()
    cluster.add(annotated("p0", annotations), annotated("p1", annotations))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == ["p0", "p1"]
    cluster.remove("Pod", "p0")
    cluster.add(annotated("p2", annotations))
    cluster.schedule_all()
    assert bound(cluster, "p1", "p2") == ["p1", "p2"]


def test_a_group_of_volcano_and_its_tasks() -> None:
    def of(name: str, task: str):
        annotations = {"scheduling.k8s.io/group-name": "j", "volcano.sh/task-spec": task}
        return annotated(name, annotations)

    group = volcano("j", 3, minTaskMember={"master": 1, "worker": 2})
    cluster = harness(group, cpus="3")
    cluster.add(of("w0", "worker"), of("w1", "worker"), of("w2", "worker"))
    cluster.schedule_all()
    assert bound(cluster, "w0", "w1", "w2") == []
    cluster.add(of("m0", "master"))
    cluster.schedule_all()
    assert bound(cluster, "m0") == ["m0"]
    assert len(bound(cluster, "w0", "w1", "w2")) == 2
    validate(cluster)


def test_a_task_that_lacks_its_pods_keeps_the_whole_group_waiting() -> None:
    def of(name: str, task: str, cpu: str):
        annotations = {"scheduling.k8s.io/group-name": "j", "volcano.sh/task-spec": task}
        return annotated(name, annotations, cpu)

    cluster = harness(volcano("j", 2, minTaskMember={"master": 1, "worker": 1}))
    cluster.add(of("m0", "master", "9"), of("w0", "worker", "1"))
    cluster.schedule_all()
    assert bound(cluster, "m0", "w0") == []
    assert cluster.node("n0").requested["cpu"] == 0
    assert "default/m0: 0/1 nodes are available: 1 Insufficient cpu" in message(cluster, "w0")


def test_groups_of_the_same_name_are_told_apart_by_whose_they_are() -> None:
    cluster = harness(gang("g", 1), volcano("g", 2))
    cluster.add(member("p0"), annotated("v0", {"scheduling.k8s.io/group-name": "g"}))
    cluster.schedule_all()
    assert bound(cluster, "p0", "v0") == ["p0"]


def test_mode_permit_reads_the_same_groups() -> None:
    cluster = harness(volcano("g", 2), mode="permit")
    cluster.add(*(annotated(f"v{n}", {"scheduling.k8s.io/group-name": "g"}) for n in (0, 1)))
    cluster.schedule("v0")
    assert cluster.waiting("v0")
    cluster.schedule("v1")
    assert bound(cluster, "v0", "v1") == ["v0", "v1"]


def test_a_configuration_is_read_again_while_there_are_groups() -> None:
    cluster = harness(gang("g", 2), member("p0"), cpus="2")
    assembly = cluster._cluster.assembly

    async def reload() -> None:
        in_force = cluster.scheduler.profile_set
        made = assembly.prepare(in_force.configuration, in_force.registry)
        cluster.scheduler.between_cycles(lambda: assembly.use(made))

    cluster.schedule_all()
    cluster._do(reload())
    cluster.add(member("p1"))
    cluster.advance(10)
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == ["p0", "p1"]
    validate(cluster)


def test_a_pod_beyond_the_maximum_starts_once_another_one_is_gone() -> None:
    annotations = {
        f"{KOORDINATOR}/name": "g",
        f"{KOORDINATOR}/min-available": "1",
        f"{KOORDINATOR}/total-number": "2",
    }
    cluster = harness()
    cluster.add(*(annotated(f"p{number}", annotations) for number in range(3)))
    cluster.schedule_all()
    placed = bound(cluster, "p0", "p1", "p2")
    assert len(placed) == 2
    cluster.remove("Pod", placed[0])
    cluster.advance(15)
    cluster.schedule_all()
    assert len(bound(cluster, *({"p0", "p1", "p2"} - {placed[0]}))) == 2


def test_a_node_with_the_resources_that_were_lacking_wakes_a_group() -> None:
    cluster = harness(gang("g", 2, minResources={"cpu": "9"}))
    cluster.add(member("p0"), member("p1"))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == []
    cluster.add(make_node("more", "8"))
    cluster.advance(15)
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == ["p0", "p1"]


def test_a_pod_that_goes_frees_the_resources_that_were_lacking() -> None:
    cluster = harness(gang("g", 2, minResources={"cpu": "4"}))
    cluster.add(make_pod("other", "1", node_name="n0"), member("p0"), member("p1"))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == []
    cluster.remove("Pod", "other")
    cluster.advance(15)
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == ["p0", "p1"]


def test_an_event_of_another_group_runs_pre_enqueue_of_none(monkeypatch) -> None:
    asked, before = [], PlannedCoscheduling.pre_enqueue
    monkeypatch.setattr(
        PlannedCoscheduling,
        "pre_enqueue",
        lambda plugin, pod: asked.append(pod.name) or before(plugin, pod),
    )
    cluster = harness(gang("g", 5), gang("other", 5))
    cluster.add(*(member(f"p{number}") for number in range(3)))
    asked.clear()
    cluster.add(gang("other", 4), gang("g", 4), member("x0", "other"))
    assert asked == ["x0"]
    cluster.add(gang("g", 3))
    assert asked[0:2] == ["x0", "p0"]
    cluster.schedule_all()
    assert len(bound(cluster, "p0", "p1", "p2")) == 3


def test_a_pod_group_speaks_for_a_gang_that_annotations_name() -> None:
    annotations = {f"{KOORDINATOR}/name": "g", f"{KOORDINATOR}/min-available": "2"}
    cluster = harness(gang("g", 3))
    cluster.add(*(annotated(f"p{number}", annotations) for number in range(2)))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == []
    cluster.add(gang("g", 2))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == ["p0", "p1"]


def test_a_pod_group_that_is_gone_speaks_no_more_for_a_gang() -> None:
    annotations = {f"{KOORDINATOR}/name": "g", f"{KOORDINATOR}/min-available": "2"}
    cluster = harness(gang("g", 3), gang("other", 3))
    cluster.add(*(annotated(f"p{number}", annotations) for number in range(2)))
    cluster.schedule_all()
    cluster.remove("PodGroup", "other")
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == []
    cluster.remove("PodGroup", "g")
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == ["p0", "p1"]


# ---- pods of different sizes -------------------------------------------------------------------


def test_a_member_that_may_go_elsewhere_leaves_its_place_to_another() -> None:
    tainted = make_node("n1", "4", taints=["k=v:NoSchedule"])
    cluster = harness(tainted, gang("g", 3))
    cluster.add(member("p0", cpu="2"), member("p1", cpu="1"), member("p2", cpu="2"))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1", "p2") == []
    # Not the one that was rejected: the larger ones are tried first.
    cluster.patch("Pod", "p0", {"spec": {"tolerations": [{"operator": "Exists"}]}})
    cluster.advance(20)
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1", "p2") == ["p0", "p1", "p2"]


@pytest.mark.parametrize(
    ("sizes", "cpus"),
    [
        ((1, 1, 1, 1, 4), (4, 4)),
        ((3, 3, 2, 2, 2), (6, 6)),
        ((2, 2, 2, 3, 3), (6, 6)),
        ((1, 2, 1, 2, 3, 3), (4, 4, 4)),
        ((1, 1, 8, 1, 1, 4), (8, 8)),
    ],
)
def test_pods_of_different_sizes_are_tried_in_other_orders(
    sizes: tuple[int, ...], cpus: tuple[int, ...]
) -> None:
    nodes = [make_node(f"n{number}", str(cpu)) for number, cpu in enumerate(cpus)]
    args = {"Coscheduling": {"mode": "plan"}}
    cluster = Harness([Coscheduling], nodes, [gang("g", len(sizes))], args=args)
    cluster.add(*(member(f"p{number}", cpu=str(cpu)) for number, cpu in enumerate(sizes)))
    cluster.schedule_all()
    names = [f"p{number}" for number in range(len(sizes))]
    assert bound(cluster, *names) == names
    validate(cluster)


def test_tasks_are_tried_in_other_orders_too() -> None:
    def of(name: str, task: str, cpu: str):
        annotations = {"scheduling.k8s.io/group-name": "j", "volcano.sh/task-spec": task}
        return annotated(name, annotations, cpu)

    cluster = harness(volcano("j", 5), nodes=2)
    cluster.add(*(of(f"a{number}", "a", "1") for number in range(4)), of("b0", "b", "4"))
    cluster.schedule_all()
    assert len(bound(cluster, "a0", "a1", "a2", "a3", "b0")) == 5


def test_gangs_that_start_together_are_tried_in_other_orders_too() -> None:
    def of(name: str, gang: str, minimum: int, cpu: str):
        notes = {"name": gang, "min-available": str(minimum), "groups": '["default/a","default/b"]'}
        return annotated(name, {f"{KOORDINATOR}/{key}": v for key, v in notes.items()}, cpu)

    cluster = harness(nodes=2)
    cluster.add(*(of(f"a{number}", "a", 4, "1") for number in range(4)), of("b0", "b", 1, "4"))
    cluster.schedule_all()
    assert len(bound(cluster, "a0", "a1", "a2", "a3", "b0")) == 5


def test_a_pod_that_may_go_to_one_node_alone_is_tried_before_the_others() -> None:
    nodes = [make_node("n0", "4", labels={"gpu": "yes"}), make_node("n1", "3")]
    args = {"Coscheduling": {"mode": "plan"}}
    cluster = Harness([Coscheduling], nodes, [gang("g", 2)], args=args)
    cluster.add(member("p0", cpu="3"), member("p1", cpu="3", node_selector={"gpu": "yes"}))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == ["p0", "p1"]


def test_a_group_that_fits_in_no_order_is_tried_in_a_few_and_says_why() -> None:
    cluster = harness(gang("g", 3), nodes=2)
    cluster.add(member("p0", cpu="1"), member("p1", cpu="2"), member("p2", cpu="5"))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1", "p2") == []
    assert "3 pods are needed together, 2 fit" in message(cluster, "p0")
    assert "pod default/p2: 0/2 nodes are available: 2 Insufficient cpu." in message(cluster, "p0")
    assert cluster.node("n0").requested["cpu"] == 0
    validate(cluster)


def attempts(cluster: Harness) -> int:
    """Return how often the only group that waits has been tried."""
    queue = cluster.scheduler.queue
    return queue.entity_of(next(iter(queue.unschedulable_pods()))).attempts


@pytest.mark.parametrize(
    ("cpus", "of_first", "fits"),
    [("1", "2", True), ("500m", "2", False), ("1", "1", False)],
)
def test_room_for_a_pod_that_is_in_the_way_wakes_a_group(
    cpus: str, of_first: str, fits: bool
) -> None:
    """The first pod, a small one, has the only node; if that has 1 CPU, it is in nobody's way."""
    cluster = harness(gang("g", 2), cpus=of_first)
    cluster.add(member("p0", cpu="1"), member("p1", cpu="2"))
    cluster.schedule_all()
    cluster.advance(30)
    cluster.add(make_node("more", cpus))
    cluster.advance(30)
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == (["p0", "p1"] if fits else [])
    assert fits or attempts(cluster) == 1
    validate(cluster)


def test_groups_of_many_kinds_are_woken_by_any_event_that_concerns_their_rejectors() -> None:
    cluster = harness(gang("g", 10), cpus="3")
    cluster.add(*(member(f"p{one}", cpu=f"{200 + one}m") for one in range(9)), member("z", cpu="3"))
    cluster.schedule_all()
    cluster.advance(30)
    assert attempts(cluster) == 1
    cluster.add(make_node("more", "100m"))
    cluster.advance(30)
    cluster.schedule_all()
    assert attempts(cluster) == 2


def test_pods_that_are_alike_are_tried_once() -> None:
    cluster = harness(gang("g", 3), cpus="2")
    cluster.add(*(member(f"p{number}") for number in range(3)))
    begun = []
    begin = cluster.scheduler.begin
    cluster.scheduler.begin = lambda queued, profile: begun.append(1) or begin(queued, profile)
    cluster.schedule_all()
    assert len(begun) == 3


def test_resources_that_the_cluster_lacks_are_lacking_in_every_order() -> None:
    cluster = harness(gang("g", 2, minResources={"cpu": "9"}), nodes=2)
    cluster.add(member("p0", cpu="1"), member("p1", cpu="2"))
    cluster.schedule_all()
    assert bound(cluster, "p0", "p1") == []
    assert "resource gap: cpu: 1000" in message(cluster, "p0")
