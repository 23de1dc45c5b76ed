"""What ``proreus explain`` says would help does help: changed with kubectl, the pod runs.

On a whole cluster, whose controllers create the pods and whose fake kubelets run them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from envtest import objects
from envtest.kube_client import KubeClient
from envtest.kwok import KwokCluster
from envtest.schedulers import Kind, RunScheduler, SchedulerProcess, configuration, profile
from envtest.waiting import eventually

Json = dict[str, Any]

SCHEDULER = "explained"


class Cluster:
    """A cluster, a scheduler in it, and the commands of its user."""

    def __init__(
        self, cluster: KwokCluster, scheduler: SchedulerProcess, client: KubeClient, kubectl: Path
    ) -> None:
        self.client = client
        self._kubeconfig = f"--kubeconfig={cluster.kubeconfig}"
        self._port = scheduler.port
        self._kubectl = str(kubectl)

    def kubectl(self, *arguments: str) -> None:
        done = subprocess.run(
            [self._kubectl, self._kubeconfig, *arguments], capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr.decode()

    def explain(self, pod: str) -> Json:
        command = ("explain", "pod", f"default/{pod}", "-o", "json", self._kubeconfig)
        scheduler = (f"--scheduler=https://127.0.0.1:{self._port}", "--insecure-skip-tls-verify")
        done = subprocess.run(
            [sys.executable, "-m", "proreus", *command, *scheduler], capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr.decode()
        explained: Json = json.loads(done.stdout)
        return explained

    def deploy(self, name: str, **options: Any) -> str:
        """Create a Deployment of one pod that waits; return the pod's name."""
        self.client.create(
            objects.DEPLOYMENTS.format("default"), objects.deployment(name, SCHEDULER, 1, **options)
        )

        def waiting() -> str:
            for pod in self._pods(name):
                conditions = pod["status"].get("conditions", ())
                if any(one.get("reason") == "Unschedulable" for one in conditions):
                    return str(pod["metadata"]["name"])
            return ""

        return eventually(60, f"the pod of {name} is unschedulable", waiting, every=0.2)

    def node_of_running(self, name: str) -> str:
        """Wait until the pod of a Deployment runs; return its node."""

        def running() -> str:
            for pod in self._pods(name):
                if pod["status"].get("phase") == "Running":
                    return str(pod["spec"]["nodeName"])
            return ""

        return eventually(60, f"the pod of {name} runs", running, every=0.2)

    def _pods(self, name: str) -> list[Json]:
        pods = self.client.list(objects.PODS.format("default"))
        return [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]


@pytest.fixture
def cluster(
    kwok_cluster: KwokCluster,
    run_scheduler: RunScheduler,
    binaries: dict[str, Path],
    under_test: Kind,
) -> Any:
    if under_test != "proreus":
        pytest.skip("kube-scheduler explains nothing")
    client = KubeClient.from_kubeconfig(kwok_cluster.kubeconfig)
    for index, cpu in enumerate(("2", "5", "3")):
        client.create(objects.NODES, objects.node(index, cpu=cpu))
    scheduler = run_scheduler(configuration([profile(SCHEDULER)], kwok_cluster.kubeconfig))

    def ready() -> bool:
        nodes = client.list(objects.NODES)
        return all(not node["spec"].get("taints") for node in nodes) and bool(
            client.list("/api/v1/namespaces/default/serviceaccounts")
        )

    eventually(60, "nodes without taints and a ServiceAccount", ready, every=0.5)
    yield Cluster(kwok_cluster, scheduler, client, binaries["kubectl"])
    scheduler.finish()
    client.close()


@pytest.mark.parametrize("kwok_cluster", [("kube-scheduler",)], indirect=True)
def test_the_smallest_change_lets_the_pod_run(cluster: Cluster) -> None:
    # A pod that waits for cpu, and the change of the pod.
    pod = cluster.deploy("large", cpu="7500m")
    explained = cluster.explain(pod)
    assert explained["waiting"]["rejectedBy"] == ["NodeResourcesFit"]
    nearest = explained["help"]["nodes"][0]
    (change,) = nearest["changes"]
    assert (nearest["node"], change["after"]) == ("node-00001", "5")
    assert change["minimal"]
    cluster.kubectl("set", "resources", "deployment/large", f"--requests=cpu={change['after']}")
    assert cluster.node_of_running("large") == nearest["node"]

    # One that waits for cpu, and the change of a node.
    pod = cluster.deploy("medium", cpu="3500m")
    changed = cluster.explain(pod)["help"]["changedNodes"]
    (change,) = changed[0]["changes"]
    assert (changed[0]["node"], change["after"]) == ("node-00002", "3500m")
    patch = json.dumps({"status": {"allocatable": {"cpu": change["after"]}}})
    cluster.kubectl("patch", "node", changed[0]["node"], "--subresource=status", f"--patch={patch}")
    assert cluster.node_of_running("medium") == changed[0]["node"]

    # One that waits for a label, and the change of a node.
    pod = cluster.deploy("labelled", cpu="100m", spec={"nodeSelector": {"disk": "ssd"}})
    changed = cluster.explain(pod)["help"]["changedNodes"]
    (change,) = changed[0]["changes"]
    assert (changed[0]["node"], change["after"]) == ("node-00000", "disk=ssd")
    cluster.kubectl("label", "node", changed[0]["node"], change["after"])
    assert cluster.node_of_running("labelled") == changed[0]["node"]
