"""deploy/only-scheduler: it stands by while kube-scheduler runs, takes over, and gives way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from envtest import assertions, objects
from envtest.control_plane import ControlPlane
from envtest.controllers import apply
from envtest.kube_client import KubeClient
from envtest.schedulers import RunScheduler, configuration, profile

Json = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
LEASE = {"leaderElect": True, "resourceNamespace": "kube-system", "resourceName": "kube-scheduler"}


def test_it_shares_the_work_of_kube_scheduler_by_its_lease(
    control_plane: ControlPlane, binaries: dict[str, Path], run_scheduler: RunScheduler
) -> None:
    client = control_plane.client
    apply(control_plane, binaries, "-k", DEPLOY / "only-scheduler")
    client.create_all(objects.NODES, [objects.node(index) for index in range(3)])
    theirs = configuration([profile("default-scheduler")], control_plane.kubeconfig, LEASE)
    before = run_scheduler(theirs, kind="kube-scheduler")
    pods_are_bound(client, "first", 5)

    scheduler = run_scheduler(with_the_rights_of_its_account(control_plane), kind="proreus")
    leader = holder(client)
    pods_are_bound(client, "second", 10)
    assert holder(client) == leader

    before.finish()
    pods_are_bound(client, "third", 15)
    assert holder(client) != leader

    run_scheduler(theirs, kind="kube-scheduler")
    scheduler.finish()
    pods_are_bound(client, "fourth", 20)


def with_the_rights_of_its_account(plane: ControlPlane) -> Json:
    """Return the configuration that is stored in the cluster, with a token of the account."""
    [stored] = [
        each
        for each in plane.client.list("/api/v1/namespaces/proreus/configmaps")
        if each["metadata"]["name"].startswith("proreus-config-")
    ]
    config: Json = yaml.safe_load(stored["data"]["scheduler.yaml"])
    token = plane.service_account_token("proreus", "proreus")
    kubeconfig = plane.write_kubeconfig(plane.folder / "service-account.kubeconfig", token=token)
    config["clientConnection"]["kubeconfig"] = str(kubeconfig)
    return config


def pods_are_bound(client: KubeClient, name: str, count: int) -> None:
    """Create five pods of default-scheduler, and wait until ``count`` have a node."""
    made = [objects.pod(f"{name}-{index}", "default-scheduler") for index in range(5)]
    client.create_all(objects.PODS, made)
    assertions.wait_until_bound(client, count, 60)


def holder(client: KubeClient) -> str:
    lease = client.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler")
    return str(lease["spec"]["holderIdentity"])
