"""Gangs on a whole cluster: Coscheduling in mode ``plan``, more groups than fit."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from envtest import objects
from envtest.kube_client import KubeClient
from envtest.kwok import KwokCluster
from envtest.schedulers import Kind, RunScheduler, configuration, profile
from envtest.waiting import eventually

Json = dict[str, Any]

NODES, GROUPS, MEMBERS, FITTING = 1000, 20, 50, 12
PODS = "/api/v1/namespaces/default/pods"
LABEL = "pod-group.scheduling.sigs.k8s.io"


def gang_profile(name: str) -> Json:
    made = profile(name)
    plugins = made.setdefault("plugins", {})
    plugins["queueSort"] = {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}
    plugins["multiPoint"] = {"enabled": [{"name": "Coscheduling"}]}
    made["pluginConfig"].append({"name": "Coscheduling", "args": {"mode": "plan"}})
    return made


def member(group: int, number: int) -> Json:
    # One a node: of the labelled nodes, there are 30 more than twelve groups need.
    labels = {f"{LABEL}/name": f"g{group}", f"{LABEL}/min-available": str(MEMBERS)}
    made = objects.pod(f"g{group}-{number}", "gangs", cpu="20", labels=labels)
    made["spec"]["nodeSelector"] = {"pool": "gangs"}
    return made


def group_of(pod: Json) -> str:
    return str(pod["metadata"]["labels"][f"{LABEL}/name"])


def bound_by_group(client: KubeClient) -> Counter[str]:
    pods = client.list(PODS)
    return Counter(group_of(pod) for pod in pods if pod["spec"].get("nodeName"))


def waiting_count(client: KubeClient) -> int:
    return len(client.list(PODS, fieldSelector="spec.nodeName="))


@pytest.mark.parametrize("kwok_cluster", [("kube-scheduler",)], ids=["alone"], indirect=True)
def test_whole_groups_run_and_the_others_hold_nothing(
    kwok_cluster: KwokCluster, run_scheduler: RunScheduler, under_test: Kind
) -> None:
    if under_test != "proreus":
        pytest.skip("kube-scheduler has no Coscheduling")
    client = KubeClient.from_kubeconfig(kwok_cluster.kubeconfig)
    pool = FITTING * MEMBERS + 30
    nodes = [
        objects.node(index, labels={"pool": "gangs"} if index < pool else None)
        for index in range(NODES)
    ]
    client.create_all(objects.NODES, nodes)

    def ready() -> bool:
        listed = client.list(objects.NODES)
        return all(not node["spec"].get("taints") for node in listed) and bool(
            client.list("/api/v1/namespaces/default/serviceaccounts")
        )

    eventually(120, "nodes without taints and a ServiceAccount", ready, every=0.5)
    scheduler = run_scheduler(configuration([gang_profile("gangs")], kwok_cluster.kubeconfig))
    started = time.monotonic()
    # Round robin, so that all groups grow at the same time.
    pods = [member(group, number) for number in range(MEMBERS) for group in range(GROUPS)]
    client.create_all(PODS, pods)
    eventually(60, "twelve groups", lambda: bound_by_group(client).total() >= FITTING * MEMBERS)
    print(f"{FITTING} groups bound {time.monotonic() - started:.1f} s after the first pod")

    def others_say_why() -> bool:
        waiting = [pod for pod in client.list(PODS) if not pod["spec"].get("nodeName")]
        reasons = [
            (condition["status"], condition["reason"])
            for pod in waiting
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "PodScheduled"
        ]
        return len(waiting) == (GROUPS - FITTING) * MEMBERS and reasons == [
            ("False", "Unschedulable")
        ] * len(waiting)

    eventually(30, "Unschedulable on every other pod", others_say_why)
    for _ in range(10):
        counts = bound_by_group(client)
        assert set(counts.values()) == {MEMBERS}
        assert len(counts) == FITTING
        time.sleep(0.3)

    first = min(counts)
    names = [f"g{first[1:]}-{number}" for number in range(MEMBERS)]
    client.in_parallel(lambda name: client.delete(f"{PODS}/{name}", gracePeriodSeconds="0"), names)
    released = time.monotonic()
    left = (GROUPS - FITTING - 1) * MEMBERS
    # Only those that wait: to list all pods at every look would hold up what is measured.
    eventually(10, "the next group", lambda: waiting_count(client) == left, every=0.02)
    seconds = time.monotonic() - released
    print(f"the next group was bound {seconds:.2f} s after the release")
    assert set(bound_by_group(client).values()) == {MEMBERS}
    scheduler.finish()
    client.close()
