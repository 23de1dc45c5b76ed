"""A release of deploy/chart on a kwok cluster: installed, upgraded, rolled back, uninstalled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from envtest import assertions, objects
from envtest.controllers import CRDS, DEFINITIONS, ELASTIC_QUOTAS
from envtest.helm import CHART, Helm
from envtest.kube_client import KubeClient
from envtest.kwok import KwokCluster
from envtest.schedulers import Kind, RunScheduler
from envtest.waiting import eventually

Json = dict[str, Any]

PROREUS = "/apis/apps/v1/namespaces/proreus/deployments/proreus"
CONFIGURATION = "/api/v1/namespaces/proreus/configmaps/proreus-config"
TOKEN = "/api/v1/namespaces/proreus/serviceaccounts/proreus/token"
LABEL = "app.kubernetes.io/name=proreus"
INSTALLED = (
    "/api/v1/configmaps",
    "/api/v1/serviceaccounts",
    "/apis/apps/v1/deployments",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    *(
        f"/apis/rbac.authorization.k8s.io/v1/{kind}"
        for kind in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
    ),
)
VALUES: Json = {
    "profiles": [
        {
            "schedulerName": "shared",
            "plugins": {
                "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
                "multiPoint": {
                    "enabled": [{"name": "Coscheduling"}, {"name": "CapacityScheduling"}],
                    "disabled": [{"name": "DefaultPreemption"}],
                },
            },
        }
    ],
    # it is started beside the cluster, with the configuration and the rights of the release
    "configuration": {"leaderElection": {"leaseDuration": "15s"}},
}
PLUGIN = "from proreus.framework import ScorePlugin\n"


def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(
    helm: Helm, kwok_cluster: KwokCluster, run_scheduler: RunScheduler, under_test: Kind
) -> None:
    client = KubeClient.from_kubeconfig(kwok_cluster.kubeconfig)
    client.create_all(objects.NODES, [objects.node(index) for index in range(3)])
    original = client.create(DEFINITIONS, definition_of_another_project())
    release = Release(helm, kwok_cluster.kubeconfig)

    release.run("install", "proreus", str(CHART), *WAIT, "--create-namespace", values=VALUES)
    wait_until_ready(client, 2)
    first = client.get(CONFIGURATION)["data"]
    assert definition(client, original)["metadata"]["uid"] == original["metadata"]["uid"]
    assert definition(client, original)["spec"] == original["spec"]
    quotas = f"{DEFINITIONS}/elasticquotas.scheduling.x-k8s.io"
    installed = client.get(quotas)["metadata"]["uid"]
    if under_test == "proreus":
        pods_are_bound(client, kwok_cluster, run_scheduler)

    changed = VALUES | {
        "replicas": 3,
        "configuration": {"podMaxBackoffSeconds": 20},
        "plugins": {"files": {"mine.py": PLUGIN}},
    }
    release.run("upgrade", "proreus", str(CHART), *WAIT, values=changed)
    wait_until_ready(client, 3)
    assert "podMaxBackoffSeconds: 20" in client.get(CONFIGURATION)["data"]["scheduler.yaml"]
    assert "--plugin-dir=/etc/proreus-plugins" in arguments(client)

    release.run("rollback", "proreus", "1", *WAIT)
    wait_until_ready(client, 2)
    assert client.get(CONFIGURATION)["data"] == first
    assert "--plugin-dir=/etc/proreus-plugins" not in arguments(client)

    quota = {"metadata": {"name": "team"}, "spec": {"max": {"cpu": "8"}}}
    kind = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota"}
    client.create(ELASTIC_QUOTAS.format("default"), kind | quota)
    release.run("uninstall", "proreus", *WAIT)
    assert left_over(client) == []
    assert client.get(f"{ELASTIC_QUOTAS.format('default')}/team")["spec"]["max"] == {"cpu": "8"}

    release.run("install", "proreus", str(CHART), *WAIT, values=VALUES)
    wait_until_ready(client, 2)
    assert client.get(quotas)["metadata"]["uid"] == installed
    release.run("uninstall", "proreus", *WAIT)
    assert definition(client, original)["spec"] == original["spec"]
    client.close()


WAIT = ("--namespace=proreus", "--wait", "--timeout=120s")


class Release:
    """Helm on one cluster."""

    def __init__(self, helm: Helm, kubeconfig: Path) -> None:
        self._helm = helm
        self._kubeconfig = kubeconfig

    def run(self, *arguments: str, values: Json | None = None) -> str:
        return self._helm.run(*arguments, values=values, kubeconfig=self._kubeconfig)


def definition_of_another_project() -> Json:
    """Return PodGroup's as scheduler-plugins may have installed it: with a field of its own."""
    made: Json = yaml.safe_load((CRDS / "podgroup.yaml").read_text())
    [version] = made["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["minTaskMember"] = {"type": "integer"}
    return made


def definition(client: KubeClient, original: Json) -> Json:
    return client.get(f"{DEFINITIONS}/{original['metadata']['name']}")


def wait_until_ready(client: KubeClient, count: int) -> None:
    """Wait until as many pods are ready, and none of the older ones is left."""

    def ready() -> bool:
        status = client.get(PROREUS)["status"]
        return {status.get(f"{name}eplicas") for name in ("r", "updatedR", "readyR")} == {count}

    eventually(60, f"{count} replicas", ready)


def arguments(client: KubeClient) -> list[str]:
    [container] = client.get(PROREUS)["spec"]["template"]["spec"]["containers"]
    found: list[str] = container["args"]
    return found


def pods_are_bound(client: KubeClient, cluster: KwokCluster, run_scheduler: RunScheduler) -> None:
    """Run proreus with the configuration and the rights of the release: kwok runs no container."""
    config = yaml.safe_load(client.get(CONFIGURATION)["data"]["scheduler.yaml"])
    token = client.create(TOKEN, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    file = cluster.folder / "service-account.kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig))
    config["clientConnection"]["kubeconfig"] = str(file)
    scheduler = run_scheduler(config)
    pods = objects.PODS.format("default")
    client.create_all(objects.PODS, [objects.pod(f"shared-{i}", "shared") for i in range(10)])
    eventually(
        60,
        "ten pods with a node",
        lambda: all(map(assertions.node_of, client.list(pods))),
    )
    assert "is forbidden" not in scheduler.log_tail(2000)
    scheduler.finish()


def left_over(client: KubeClient) -> list[str]:
    return [
        f"{path}/{one['metadata']['name']}"
        for path in INSTALLED
        for one in client.list(path, labelSelector=LABEL)
    ]
