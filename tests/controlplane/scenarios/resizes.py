"""Deferred resizes: preemption makes room for a pod that grows on its node (since Kubernetes 1.37).

There is no kubelet: scenarios write the status that one would write.
"""

from __future__ import annotations

from typing import Any

from envtest.scenario_cluster import HOST, ScenarioCluster

Json = dict[str, Any]

GATES = "InPlacePodVerticalScalingSchedulerPreemption=true"

PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"


def _status(cluster: ScenarioCluster, name: str, cpu: str, reason: str) -> None:
    """Write that a running pod has an amount of cpu, and why it does not have what it asks for."""
    held = {"cpu": cpu, "memory": "1Gi"}
    container = {
        "name": "main",
        "image": "pause:3.10",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        "allocatedResources": held,
        "resources": {"requests": held},
    }
    pending: Json = {"type": "PodResizePending"}
    pending |= {"status": "True", "reason": reason} if reason else {"$patch": "delete"}
    status = {"phase": "Running", "containerStatuses": [container], "conditions": [pending]}
    cluster.client.patch(f"{PODS}/{name}/status", {"status": status}, STRATEGIC)


def _defer(cluster: ScenarioCluster, name: str, cpu: str, was: str) -> None:
    """Resize a pod; its kubelet has no room for that."""
    _status(cluster, name, was, "")
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    cluster.client.patch(f"{PODS}/{name}/resize", {"spec": {"containers": [container]}}, STRATEGIC)
    _status(cluster, name, was, "Deferred")


def _cluster_with_a_pod_that_grows(cluster: ScenarioCluster, **spec: Any) -> None:
    cluster.node("here", 4, **spec)
    cluster.node("there", 8)
    for node in ("here", "there"):
        cluster.pod(f"low-{node}", "1", on=node, priority="low")
        cluster.pod(f"top-{node}", "500m", on=node, priority="top")
    cluster.settle()
    cluster.place("grows", "1", priority="high", nodeSelector={HOST: "here"})
    cluster.bound(grows="here")


def resizes_preempt_on_their_own_node(cluster: ScenarioCluster) -> None:
    """Less important pods of the node leave; nothing is said about the pod that grows."""
    _cluster_with_a_pod_that_grows(cluster)
    _defer(cluster, "grows", "3", "1")
    cluster.leaving("low-here")
    cluster.note("a victim leaves")
    cluster.end("low-here")
    cluster.settle()
    cluster.note("the resize fits")
    _status(cluster, "grows", "3", "")
    cluster.place("late", "1", priority="top", nodeSelector={HOST: "here"})


def resizes_that_fit_preempt_nobody(cluster: ScenarioCluster) -> None:
    """Neither those that fit, nor those that would not fit without the less important pods."""
    _cluster_with_a_pod_that_grows(cluster)
    _defer(cluster, "grows", "2", "1")
    cluster.settle()
    cluster.note("there is room for two")
    _defer(cluster, "grows", "3800m", "1")
    cluster.settle()
    cluster.note("a more important pod is in the way")


def nodes_may_forbid_preemption_for_resizes(cluster: ScenarioCluster) -> None:
    """While they do nobody leaves; once they do no longer the pod is tried again."""
    policy = {"disableResizePreemption": ["example.com/operator"]}
    _cluster_with_a_pod_that_grows(cluster, podPreemptionPolicy=policy)
    _defer(cluster, "grows", "3", "1")
    cluster.settle()
    cluster.note("it is forbidden")
    cluster.change_node("here", {"spec": {"podPreemptionPolicy": None}})
    cluster.leaving("low-here")


def resizes_of_polite_pods_wait(cluster: ScenarioCluster) -> None:
    """A pod that never preempts waits for room; it goes on counting with what it asks for."""
    cluster.node("here", 4)
    cluster.pod("low-here", "2", on="here", priority="low")
    cluster.settle()
    cluster.place("grows", "1", priority="polite")
    _defer(cluster, "grows", "3", "1")
    cluster.settle()
    cluster.note("nobody leaves")
    cluster.place("new", "500m", priority="polite")


SCENARIOS = (
    resizes_preempt_on_their_own_node,
    resizes_that_fit_preempt_nobody,
    nodes_may_forbid_preemption_for_resizes,
    resizes_of_polite_pods_wait,
)
