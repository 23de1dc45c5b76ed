"""A whole cluster: controllers create pods, fake kubelets run them, users update and drain.

Once with kube-scheduler serving default-scheduler alongside the scheduler under test, once with the
scheduler under test alone.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from envtest import assertions, objects
from envtest.kube_client import KubeClient
from envtest.kwok import KwokCluster
from envtest.schedulers import RunScheduler, configuration, profile
from envtest.waiting import eventually

Json = dict[str, Any]

NODES = 200
NAMES = ("default-scheduler", "spread-out", "bin-packing")

# for each name: two Deployments, two Jobs and bare pods make up a third of 2,000
REPLICAS, COMPLETIONS, BARE = 200, 50, (168, 166, 166)

LEASE = {"leaderElect": True, "resourceName": "proreus"}


@pytest.mark.parametrize(
    "kwok_cluster", [(), ("kube-scheduler",)], ids=["with-kube-scheduler", "alone"], indirect=True
)
def test_pods_through_updates_and_drains(
    kwok_cluster: KwokCluster, run_scheduler: RunScheduler, binaries: dict[str, Path]
) -> None:
    client = KubeClient.from_kubeconfig(kwok_cluster.kubeconfig)
    client.create_all(objects.NODES, [objects.node(index) for index in range(NODES)])
    profiles = [
        profile("spread-out", "LeastAllocated"),
        profile("bin-packing", "MostAllocated"),
    ]
    if not kwok_cluster.has("kube-scheduler"):
        profiles.append(profile("default-scheduler"))
    scheduler = run_scheduler(configuration(profiles, kwok_cluster.kubeconfig, LEASE))
    wait_until_pods_may_be_made(client)

    create_workloads(client)
    wait_until_everything_runs(client)
    check_what_happened(client)
    roll_out(client, "spread-out-0")
    roll_out(client, "bin-packing-0")
    drain(client, [str(binaries["kubectl"]), f"--kubeconfig={kwok_cluster.kubeconfig}"])

    scheduler.finish()
    client.close()


def wait_until_pods_may_be_made(client: KubeClient) -> None:
    """Wait until not-ready taints are removed and the default ServiceAccount exists."""

    def ready() -> bool:
        nodes = client.list(objects.NODES)
        return all(not node["spec"].get("taints") for node in nodes) and bool(
            client.list("/api/v1/namespaces/default/serviceaccounts")
        )

    eventually(60, "nodes without taints and a ServiceAccount", ready, every=0.5)


def create_workloads(client: KubeClient) -> None:
    deployments, jobs, pods = [], [], []
    for name, bare in zip(NAMES, BARE, strict=True):
        for index, cpu in enumerate(("500m", "1")):
            deployments.append(objects.deployment(f"{name}-{index}", name, REPLICAS, cpu=cpu))
            jobs.append(objects.job(f"{name}-{index}", name, COMPLETIONS, cpu=cpu))
        pods += [objects.pod(f"{name}-bare-{index}", name, cpu="250m") for index in range(bare)]
    client.create_all(objects.DEPLOYMENTS, deployments)
    client.create_all(objects.JOBS, jobs)
    client.create_all(objects.PODS, pods)


def wait_until_everything_runs(client: KubeClient) -> None:
    bare = "!batch.kubernetes.io/job-name,!pod-template-hash"

    def done() -> bool:
        deployments = client.list(objects.DEPLOYMENTS.format("default"))
        jobs = client.list(objects.JOBS.format("default"))
        return (
            all(each["status"].get("readyReplicas") == REPLICAS for each in deployments)
            and all(each["status"].get("succeeded") == COMPLETIONS for each in jobs)
            and client.count(
                objects.PODS.format("default"),
                labelSelector=bare,
                fieldSelector="status.phase=Running",
            )
            == sum(BARE)
        )

    eventually(120, "all Deployments ready, all Jobs complete, all bare pods running", done, 0.5)


def check_what_happened(client: KubeClient) -> None:
    pods, nodes = client.list(assertions.ALL_PODS), client.list(objects.NODES)
    assert Counter(pod["spec"]["schedulerName"] for pod in pods) == {
        name: 2 * REPLICAS + 2 * COMPLETIONS + bare for name, bare in zip(NAMES, BARE, strict=True)
    }
    assertions.check_all_fit(nodes, pods)
    assertions.check_no_node_over_committed(nodes, pods)
    assertions.check_scheduled_conditions(pods)

    def announced() -> Counter[str]:
        events = assertions.scheduled_events(client)
        done = assertions.check_each_scheduler_bound_its_own_pods(events, pods)
        # kube-scheduler drops Events above its rate limit, so this cannot be asserted of it
        return done if done.total() > 0.95 * len(pods) else Counter()

    assert set(eventually(30, "Scheduled events", announced, every=0.5)) == set(NAMES)


def roll_out(client: KubeClient, name: str) -> None:
    """Change the template of a Deployment: its pods are replaced while the others run."""
    path = f"{objects.DEPLOYMENTS.format('default')}/{name}"
    old = {pod["metadata"]["uid"] for pod in pods_of(client, name)}
    client.patch(path, {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})

    def replaced() -> bool:
        status = client.get(path)
        said = status["status"]
        return (
            said.get("observedGeneration") == status["metadata"]["generation"]
            and said.get("updatedReplicas") == said.get("readyReplicas") == REPLICAS
            and said.get("replicas") == REPLICAS
        )

    eventually(90, f"{name} rolled out", replaced, every=0.25)
    pods = [pod for pod in pods_of(client, name) if "deletionTimestamp" not in pod["metadata"]]
    assert len(pods) == REPLICAS
    assert not {pod["metadata"]["uid"] for pod in pods} & old
    assertions.check_no_node_over_committed(client.list(objects.NODES), all_pods(client))


def drain(client: KubeClient, kubectl: list[str]) -> None:
    """Evict all pods of the fullest node, within a disruption budget; they are replaced."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "half", "namespace": "default"},
        "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "bin-packing-0"}}},
    }
    client.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    running = [pod for pod in all_pods(client) if not assertions.terminal(pod)]
    [(node, evicted)] = Counter(assertions.node_of(pod) for pod in running).most_common(1)
    assert evicted > 10
    subprocess.run(
        [*kubectl, "drain", str(node), "--ignore-daemonsets", "--force", "--timeout=60s"],
        check=True,
        capture_output=True,
        timeout=90,
    )

    def whole_again() -> bool:
        return all(
            each["status"].get("readyReplicas") == REPLICAS
            for each in client.list(objects.DEPLOYMENTS.format("default"))
        )

    eventually(60, "all Deployments whole again after the drain", whole_again, every=0.25)
    pods = all_pods(client)
    assert not [
        pod for pod in pods if assertions.node_of(pod) == node and not assertions.terminal(pod)
    ]
    assertions.check_no_node_over_committed(client.list(objects.NODES), pods)


def all_pods(client: KubeClient) -> list[Json]:
    return client.list(assertions.ALL_PODS)


def pods_of(client: KubeClient, deployment: str) -> list[Json]:
    path = objects.PODS.format("default")
    return client.list(path, labelSelector=f"app={deployment}")
