"""LeaderWorkerSets."""

from __future__ import annotations

from typing import Any

from envtest import assertions

from operators.gangs import GangCluster

Json = dict[str, Any]

NAME = "leaderworkerset.sigs.k8s.io"
CONFIG = {"apiVersion": "config.lws.x-k8s.io/v1alpha1", "kind": "Configuration"}


def leader_worker_set(gangs: GangCluster, size: int, annotations: Json | None = None) -> Json:
    template = gangs.template(schedulerName="gangs")
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "vllm", "annotations": annotations or {}},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {"size": size, "workerTemplate": template},
        },
    }


def start(gangs: GangCluster, **config: Json) -> None:
    gangs.start_operator("lws", config=CONFIG | config)
    gangs.schedule("gangs")


def test_leader_and_workers_start_together(gangs: GangCluster) -> None:
    start(gangs)
    gangs.starts_as_a_whole(leader_worker_set(gangs, size=3), "leaderworkersets", 3)


def test_leader_and_workers_are_a_pod_group_of_volcano(gangs: GangCluster) -> None:
    gangs.install_pod_groups()
    start(gangs, gangSchedulingManagement={"schedulerProvider": "volcano"})
    gangs.starts_as_a_whole(leader_worker_set(gangs, size=3), "leaderworkersets", 3)
    annotation = "scheduling.k8s.io/group-name"
    [group] = {pod["metadata"]["annotations"].get(annotation) for pod in gangs.pods()}
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{gangs.namespace}/podgroups/{group}"
    assert gangs.client.get(path)["spec"]["minMember"] == 3


def test_workers_follow_their_leader_into_its_domain(gangs: GangCluster) -> None:
    start(gangs)
    racks = {gangs.add_node(2, {"rack": rack}): rack for rack in "aabb"}
    exclusive = {f"{NAME}/exclusive-topology": "rack"}
    document = leader_worker_set(gangs, size=3, annotations=exclusive)
    document["spec"]["replicas"] = 2
    gangs.create(document, "leaderworkersets")
    gangs.runs_as_a_whole(6)
    domains = {
        (pod["metadata"]["labels"][f"{NAME}/group-index"], racks[assertions.node_of(pod) or ""])
        for pod in gangs.pods()
    }
    assert len(domains) == 2, gangs.summary()
    assert {rack for _, rack in domains} == {"a", "b"}, gangs.summary()
