"""Nodes that Karpenter adds for pods that proreus finds no room for, with its provider of kwok."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from envtest import assertions, controllers, objects

from operators.gangs import GangCluster

Json = dict[str, Any]

NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"
NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
NODE_CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"


def node_pool(gangs: GangCluster) -> Json:
    """Return a pool of nodes with the test's label and two CPUs: room for one pod of the test."""
    requirements = [
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
    ]
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": gangs.namespace}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": gangs.namespace},
        "spec": {
            "disruption": {"consolidateAfter": "Never"},
            "template": {
                "metadata": {"labels": {"pool": gangs.namespace}},
                "spec": {"nodeClassRef": node_class, "requirements": requirements},
            },
        },
    }


@pytest.fixture
def karpenter(gangs: GangCluster) -> Iterator[GangCluster]:
    """The cluster with Karpenter, proreus, and a pool; what they make is deleted at the end."""
    gangs.install_pod_groups()
    gangs.start_operator("karpenter")
    gangs.schedule("gangs")
    node_class = {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": gangs.namespace},
        "spec": {},
    }
    gangs.client.create(NODE_CLASSES, node_class)
    gangs.client.create(NODE_POOLS, node_pool(gangs))
    yield gangs
    gangs.client.delete(objects.PODS.format(gangs.namespace))
    gangs.client.delete(f"{NODE_POOLS}/{gangs.namespace}")
    gangs.eventually("no nodes any more", lambda: not nodes(gangs))


def nodes(gangs: GangCluster) -> list[Json]:
    return gangs.client.list(objects.NODES, labelSelector=f"pool={gangs.namespace}")


def create_pod(gangs: GangCluster, name: str, **labels: str) -> None:
    pod = gangs.template(schedulerName="gangs")
    pod["metadata"] = {"name": name, "labels": labels}
    gangs.client.create(objects.PODS.format(gangs.namespace), pod)


def runs_on_claimed_nodes(gangs: GangCluster, pods: int) -> None:
    gangs.runs_as_a_whole(pods)
    bound = {assertions.node_of(pod) for pod in gangs.pods()}
    assert len(bound) == pods, gangs.summary()
    # Karpenter notes a node's name after it has removed the node's taint
    gangs.eventually(f"claims of {bound}", lambda: claimed_nodes(gangs) == bound)


def claimed_nodes(gangs: GangCluster) -> set[str | None]:
    """Return the nodes of the test's claims, with None for a claim whose node is not there."""
    claims = gangs.client.list(
        NODE_CLAIMS, labelSelector=f"karpenter.sh/nodepool={gangs.namespace}"
    )
    return {claim.get("status", {}).get("nodeName") for claim in claims}


def test_pod_without_room_gets_a_node(karpenter: GangCluster) -> None:
    create_pod(karpenter, "alone")
    runs_on_claimed_nodes(karpenter, 1)


def test_gang_without_room_gets_a_node_for_each_member(karpenter: GangCluster) -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "demo"},
        "spec": {"minMember": 3},
    }
    karpenter.client.create(controllers.POD_GROUPS.format(karpenter.namespace), group)
    for name in ("one", "two", "three"):
        create_pod(karpenter, name, **{"scheduling.x-k8s.io/pod-group": "demo"})
    runs_on_claimed_nodes(karpenter, 3)
