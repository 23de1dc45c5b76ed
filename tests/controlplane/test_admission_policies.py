"""deploy/admission-policies on a real apiserver: owners of pods write no allocations."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from envtest import objects
from envtest.control_plane import ControlPlane
from envtest.kube_client import ApiFailure, KubeClient
from envtest.waiting import eventually

Json = dict[str, Any]

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
PODS = objects.PODS.format("default")
DEVICES = "scheduling.koordinator.sh/device-allocated"
RESERVATION = "scheduling.koordinator.sh/reservation-allocated"
QUEUE = "kai.scheduler/queue"
FRACTION = "gpu-fraction"

Client = Callable[[str, str], KubeClient]


@pytest.fixture(scope="module")
def client_of(control_plane: ControlPlane) -> Iterator[Client]:
    """Return the client of a ServiceAccount that may do with pods what a tenant may."""
    opened: list[KubeClient] = []

    def client_of(namespace: str, name: str) -> KubeClient:
        binding = f"{namespace}-{name}-pods"
        control_plane.client.create(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": binding},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    # What "edit" consists of; no controller aggregates it here.
                    "name": "system:aggregate-to-edit",
                },
                "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
            },
        )
        kubeconfig = control_plane.write_kubeconfig(
            control_plane.folder / f"{binding}.kubeconfig",
            token=control_plane.service_account_token(namespace, name),
        )
        opened.append(KubeClient.from_kubeconfig(kubeconfig))
        return opened[-1]

    yield client_of
    for client in opened:
        client.close()


@pytest.fixture(scope="module")
def tenant(control_plane: ControlPlane, binaries: dict[str, Path], client_of: Client) -> KubeClient:
    """Apply the policies; return a client of a tenant, once they are in force."""
    admin = control_plane.client
    for namespace, name in (("default", "tenant"), ("proreus", "proreus")):
        if namespace != "default":
            admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        admin.create(path, {"metadata": {"name": name}})
    folder = str(DEPLOY / "admission-policies")
    kubectl = [str(binaries["kubectl"]), f"--kubeconfig={control_plane.kubeconfig}"]
    apply = [*kubectl, "apply", "-k", folder, "--validate=strict"]
    result = subprocess.run(apply, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    client = client_of("default", "tenant")
    eventually(30, "the policies in force", lambda: refusal(client, "probe", {DEVICES: "{}"}))
    return client


def refusal(client: KubeClient, name: str, annotations: Json) -> str:
    """Create a pod; return why that is refused, "" if it is not."""
    pod = objects.pod(name, "nobody")
    pod["metadata"]["annotations"] = annotations
    try:
        client.create(PODS, pod)
    except ApiFailure as failure:
        if failure.status != 403:
            raise
        return str(failure)
    client.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
    return ""


def refused(client: KubeClient, path: str, metadata: Json) -> bool:
    """Patch metadata of a pod; return whether that is forbidden."""
    try:
        client.patch(path, {"metadata": metadata})
    except ApiFailure as failure:
        if failure.status != 403:
            raise
        return True
    return False


def bound_pod(control_plane: ControlPlane, name: str) -> str:
    """Create a pod with a node; return its path."""
    pod = objects.pod(name, "nobody")
    pod["metadata"]["annotations"] = {FRACTION: "0.5"}
    pod["metadata"]["labels"] = {QUEUE: "a"}
    control_plane.client.create(PODS, pod)
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
    control_plane.client.create(f"{PODS}/{name}/binding", binding)
    return f"{PODS}/{name}"


@pytest.mark.parametrize("key", [DEVICES, RESERVATION, "volcano.sh/vgpu-ids-new"])
def test_an_owner_writes_no_allocation(
    control_plane: ControlPlane, tenant: KubeClient, key: str
) -> None:
    assert "only a scheduler may write the annotations" in refusal(tenant, "made", {key: "{}"})
    assert not refusal(tenant, "usual", {"note": "mine", FRACTION: "0.5"})
    path = bound_pod(control_plane, f"p-{key.rpartition('/')[2]}")
    assert refused(tenant, path, {"annotations": {key: "{}"}})
    assert not refused(tenant, path, {"annotations": {"note": "mine"}, "labels": {"app": "x"}})


def test_the_scheduler_writes_allocations_and_nobody_changes_them(
    control_plane: ControlPlane, tenant: KubeClient, client_of: Client
) -> None:
    scheduler = client_of("proreus", "proreus")
    path = bound_pod(control_plane, "given")
    assert not refused(scheduler, path, {"annotations": {DEVICES: '{"gpu": []}'}})
    assert refused(tenant, path, {"annotations": {DEVICES: None}})
    assert refused(tenant, path, {"annotations": {DEVICES: "{}"}})
    assert not refused(tenant, path, {"annotations": {"note": "mine"}})


def test_a_pod_with_a_node_stays_in_its_queue_and_keeps_its_request(
    control_plane: ControlPlane, tenant: KubeClient
) -> None:
    path = bound_pod(control_plane, "queued")
    for queue in ("b", None):
        assert refused(tenant, path, {"labels": {QUEUE: queue}})
    for fraction in ("0.1", None):
        assert refused(tenant, path, {"annotations": {FRACTION: fraction}})
    assert refused(tenant, path, {"annotations": {"volcano.sh/queue-name": "b"}})
    # A request that cannot be read counts as none after a restart.
    for name in ("device-allocate-hint", "device-joint-allocate", "gpu-partition-spec"):
        assert refused(tenant, path, {"annotations": {f"scheduling.koordinator.sh/{name}": "["}})
    assert refused(tenant, path, {"labels": {"kai.scheduler/preemptibility": "non-preemptible"}})


def test_a_pod_that_waits_may_name_another_queue(
    control_plane: ControlPlane, tenant: KubeClient
) -> None:
    pod = objects.pod("waits", "nobody")
    pod["metadata"]["labels"] = {QUEUE: "a"}
    control_plane.client.create(PODS, pod)
    assert not refused(tenant, f"{PODS}/waits", {"labels": {QUEUE: "b"}})
