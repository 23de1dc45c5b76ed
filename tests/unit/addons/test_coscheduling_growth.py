"""The work of Coscheduling grows with the pods of a tenant, not with its pods times its events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL
from proreus.testing import Harness, make_node, make_pod
from unit.growth import MOST_FOR_FOUR_TIMES, growth

KOORDINATOR = "gang.scheduling.koordinator.sh"
Work = Callable[[], object]


def harness(mode: str = "plan", nodes: int = 1) -> Harness:
    made = [make_node(f"n{number}", "8", pods="10000") for number in range(nodes)]
    return Harness([Coscheduling], made, args={"Coscheduling": {"mode": mode}})


def pod_group(name: str, members: int, volcano: bool = True, **spec: Any) -> dict:
    group = "scheduling.volcano.sh/v1beta1" if volcano else "scheduling.x-k8s.io/v1alpha1"
    meta = {"name": name, "namespace": "default"}
    spec = {"minMember": members, **spec}
    return {"apiVersion": group, "kind": "PodGroup", "metadata": meta, "spec": spec}


def task(number: int, name: str = "") -> Any:
    """Return a pod of the group ``g``, of a task of its own unless ``name`` says which."""
    notes = {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": name or f"t{number}"}
    return make_pod(f"p{number:04}", "1m", metadata={"annotations": notes})


def gang_of_many(number: int, many: int) -> Any:
    """Return a pod of one of ``many`` gangs that start together, each of two pods."""
    groups = json.dumps([f"default/g{one}" for one in range(many)])
    notes = {"name": f"g{number}", "min-available": "2", "groups": groups}
    annotations = {f"{KOORDINATOR}/{key}": value for key, value in notes.items()}
    return make_pod(f"p{number:04}", metadata={"annotations": annotations})


def add_all(cluster: Harness, *objects: Any) -> Work:
    return lambda: [cluster.add(one) for one in objects]


def schedule_all(cluster: Harness) -> Work:
    """Return what schedules all pods; the test kit's own would sort them after each attempt."""

    async def schedule() -> None:
        while await cluster._cluster.schedule_next() is not None:
            pass

    return lambda: cluster._do(schedule())


# ---- mode plan ---------------------------------------------------------------------------------


def pods_of_tasks_join_a_gated_group(number: int) -> Work:
    cluster = harness()
    cluster.add(pod_group("g", 10_000))
    return add_all(cluster, *map(task, range(number)))


def pods_join_an_active_group(number: int) -> Work:
    cluster = harness()
    cluster.add(pod_group("g", 1))
    return add_all(cluster, *map(task, range(number)))


def pods_join_a_group_that_fits_nowhere(number: int) -> Work:
    cluster = harness(nodes=0)
    cluster.add(pod_group("g", 1), *map(task, range(number)))
    cluster.schedule_all()
    return add_all(cluster, *map(task, range(number, 2 * number)))


def a_pod_group_is_patched(number: int) -> Work:
    """Each of so many times, while as many pods are gated: each of a task of its own."""
    cluster = harness()
    cluster.add(pod_group("g", 10_000), *map(task, range(number)))
    return add_all(cluster, *(pod_group("g", 10_001 + one % 2) for one in range(number)))


def a_pod_group_is_patched_with_all_tasks(number: int) -> Work:
    """Once, with a minimum for each task, after all of them were tried."""
    cluster = harness(nodes=0)
    cluster.add(pod_group("g", 1), *map(task, range(number)))
    cluster.schedule_all()
    return add_all(cluster, pod_group("g", 1, minTaskMember={f"t{n}": 1 for n in range(number)}))


def gated_pods_are_deleted(number: int) -> Work:
    cluster = harness()
    cluster.add(pod_group("g", 10_000), *map(task, range(number)))
    return lambda: [cluster.remove("Pod", f"p{one:04}") for one in range(number)]


def active_pods_are_deleted(number: int) -> Work:
    cluster = harness()
    cluster.add(pod_group("g", 1), *map(task, range(number)))
    return lambda: [cluster.remove("Pod", f"p{one:04}") for one in range(number)]


def pods_are_relabelled(number: int) -> Work:
    cluster = harness()
    cluster.add(pod_group("g", 10_000), *map(task, range(number)))
    label = {"metadata": {"labels": {"a": "b"}}}
    return lambda: [cluster.patch("Pod", f"p{one:04}", label) for one in range(number)]


def pods_of_tasks_are_planned(number: int) -> Work:
    cluster = harness()
    cluster.add(pod_group("g", number), *map(task, range(number)))
    return schedule_all(cluster)


def pods_are_planned(number: int) -> Work:
    cluster = harness()
    cluster.add(pod_group("g", number), *(task(one, "worker") for one in range(number)))
    return schedule_all(cluster)


def other_pod_groups_appear(number: int) -> Work:
    """Beside gangs that wait for each other."""
    cluster = harness()
    cluster.add(*(gang_of_many(one, number) for one in range(number)))
    return add_all(cluster, *(pod_group(f"x{one}", 3, volcano=False) for one in range(number)))


def pod_groups_of_gangs_that_start_together_are_patched(number: int) -> Work:
    cluster = harness()
    cluster.add(*(gang_of_many(one, number) for one in range(number)))
    return add_all(cluster, *(pod_group(f"g{one}", 9, volcano=False) for one in range(number)))


def pods_of_others_come_and_go(number: int) -> Work:
    """While as many pods are gated."""
    cluster = harness()
    cluster.add(pod_group("g", 10_000), *map(task, range(number)))
    pods = [make_pod(f"o{one}", node_name="n0") for one in range(number)]

    def work() -> None:
        for pod in pods:
            cluster.add(pod)
            cluster.remove("Pod", pod.name)

    return work


# ---- mode permit -------------------------------------------------------------------------------


def member(number: int) -> Any:
    return make_pod(f"p{number:04}", "1m", labels={POD_GROUP_LABEL: "g"})


def pods_wait_on_permit_and_start(number: int) -> Work:
    cluster = harness("permit")
    cluster.add(pod_group("g", number, volcano=False), *map(member, range(number)))
    return schedule_all(cluster)


def pods_wait_on_permit_and_fail(number: int) -> Work:
    cluster = harness("permit")
    cluster.add(pod_group("g", number, volcano=False), *map(member, range(number - 1)))
    cluster.add(make_pod("zz", "99", labels={POD_GROUP_LABEL: "g"}))
    return schedule_all(cluster)


@pytest.mark.parametrize(
    "prepare",
    [
        pods_of_tasks_join_a_gated_group,
        pods_join_an_active_group,
        pods_join_a_group_that_fits_nowhere,
        a_pod_group_is_patched,
        a_pod_group_is_patched_with_all_tasks,
        gated_pods_are_deleted,
        active_pods_are_deleted,
        pods_are_relabelled,
        pods_of_tasks_are_planned,
        pods_are_planned,
        other_pod_groups_appear,
        pod_groups_of_gangs_that_start_together_are_patched,
        pods_of_others_come_and_go,
        pods_wait_on_permit_and_start,
        pods_wait_on_permit_and_fail,
    ],
)
def test_four_times_as_many_objects_are_no_more_than_six_times_the_work(
    prepare: Callable[[int], Work],
) -> None:
    assert growth(prepare, 60) < MOST_FOR_FOUR_TIMES
