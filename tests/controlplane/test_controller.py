"""``proreus controller`` on a real apiserver: definitions, statuses, Lease, end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from envtest import objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.controllers import (
    CRDS,
    DEFINITIONS,
    ELASTIC_QUOTAS,
    POD_GROUPS,
    ControllerProcess,
    apply,
    install,
)
from envtest.kube_client import ApiFailure, KubeClient
from envtest.waiting import eventually

Json = dict[str, Any]

PODS = objects.PODS.format("default")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/proreus-controller"


@pytest.fixture
def controller(control_plane: ControlPlane, folder: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(control_plane.kubeconfig, folder)
    process.start()
    yield process
    process.kill()


def pod_group(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }


def quota(name: str, least: Json, most: Json) -> Json:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name},
        "spec": {"min": least, "max": most},
    }


def set_phase(client: KubeClient, name: str, phase: str) -> None:
    client.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})


def status_of(client: KubeClient, path: str) -> Json:
    status: Json = client.get(path).get("status", {})
    return status


def eventually_status(client: KubeClient, path: str, **wanted: Any) -> Json:
    """Wait until these fields are in an object's status; return all of it."""

    def present() -> bool:
        status = status_of(client, path)
        return all(status.get(name) == value for name, value in wanted.items())

    eventually(30, f"{wanted} in the status of {path}", present)
    return status_of(client, path)


def test_statuses_follow_the_pods(
    control_plane: ControlPlane, controller: ControllerProcess
) -> None:
    client = control_plane.client
    eventually(30, "readyz", lambda: controller.get("/readyz")[0] == 200)
    eventually(30, "a leader", lambda: client.request("GET", LEASE).status == 200)
    # The definitions come after the controller.
    for name in ("podgroup", "elasticquota"):
        install(client, name)
    client.create(objects.NODES, objects.node(0))
    groups, quotas = POD_GROUPS.format("default"), ELASTIC_QUOTAS.format("default")
    client.create(groups, pod_group("gang", minMember=2))
    client.create(quotas, quota("team", {"cpu": "500m"}, {"cpu": "4"}))
    eventually_status(client, f"{groups}/gang", phase="Pending")

    labels = {"scheduling.x-k8s.io/pod-group": "gang"}
    for name in ("a", "b"):
        client.create(PODS, objects.pod(name, "nobody", labels=labels, cpu="400m"))
    status = eventually_status(client, f"{groups}/gang", phase="Scheduling")
    assert status["scheduleStartTime"]
    for name in ("a", "b"):
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node-00000"}}
        client.create(f"{PODS}/{name}/binding", binding)
    eventually_status(client, f"{quotas}/team", assigned={"cpu": "800m", "memory": "1073741824"})
    for name in ("a", "b"):
        set_phase(client, name, "Running")
    eventually_status(client, f"{groups}/gang", phase="Running", running=2)
    used = {"cpu": "800m", "memory": "1073741824"}
    borrowed = {"cpu": "300m", "memory": "1073741824"}
    eventually_status(client, f"{quotas}/team", used=used, borrowed=borrowed)
    for name in ("a", "b"):
        set_phase(client, name, "Succeeded")
    eventually_status(client, f"{groups}/gang", phase="Finished", running=0, succeeded=2)
    eventually_status(client, f"{quotas}/team", used={"cpu": "0"}, borrowed={"cpu": "0"})

    code, text = controller.get("/metrics", ADMIN_TOKEN)
    assert code == 200
    assert 'status_writes_total{resource="podgroups",result="written"}' in text
    assert "rest_client_requests_total" in text
    assert "scheduler_pending_pods" not in text
    assert controller.get("/metrics")[0] in (401, 403)

    # Nothing is written where nothing has changed.
    version = client.get(f"{groups}/gang")["metadata"]["resourceVersion"]
    assert controller.terminate(20) == 0
    assert not client.get(LEASE)["spec"].get("holderIdentity")
    assert client.get(f"{groups}/gang")["metadata"]["resourceVersion"] == version


def test_a_reservation_gets_back_what_an_owner_took_and_expires(
    control_plane: ControlPlane, folder: Path
) -> None:
    client = control_plane.client
    install(client, "reservation")
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
    template = {"spec": {"containers": [{"name": "room"}]}}
    labels = {"matchLabels": {"app": "web"}}
    spec = {"template": template, "owners": [{"labelSelector": labels}], "allocateOnce": False}
    made = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation"}
    kept = client.create(path, {**made, "metadata": {"name": "kept"}, "spec": spec})
    past = spec | {"expires": "2026-01-01T00:00:00Z"}
    client.create(path, {**made, "metadata": {"name": "past"}, "spec": past})
    available = {"phase": "Available", "nodeName": "anywhere", "allocatable": {"cpu": "4"}}
    client.patch(f"{path}/kept/status", {"status": available})
    owner = objects.pod("owner", "nobody", cpu="1")
    taken = json.dumps({"name": "kept", "uid": kept["metadata"]["uid"]})
    annotation = "scheduling.koordinator.sh/reservation-allocated"
    owner["metadata"].setdefault("annotations", {})[annotation] = taken
    owner["metadata"]["labels"] = labels["matchLabels"]
    owner["spec"]["nodeName"] = "anywhere"
    client.create(PODS, owner)
    process = ControllerProcess(
        control_plane.kubeconfig, folder, "reserving", ["--status=reservations"]
    )
    process.start()
    try:
        eventually_status(client, f"{path}/past", phase="Failed")
        status = eventually_status(client, f"{path}/kept", allocated={"cpu": "1"})
        assert [one["name"] for one in status["currentOwners"]] == ["owner"]
        client.delete(f"{PODS}/owner", {"gracePeriodSeconds": 0})
        eventually_status(client, f"{path}/kept", allocated={"cpu": "0"}, currentOwners=[])
        assert status_of(client, f"{path}/kept")["phase"] == "Available"
        assert process.terminate(20) == 0
    finally:
        process.kill()


@pytest.mark.parametrize(
    "name", sorted({path.stem for path in CRDS.glob("*.yaml")} - {"kustomization"})
)
def test_each_definition_can_be_installed_alone(control_plane: ControlPlane, name: str) -> None:
    client = control_plane.client
    install(client, name)
    name_in_cluster = yaml.safe_load((CRDS / f"{name}.yaml").read_text())["metadata"]["name"]
    definition = client.get(f"{DEFINITIONS}/{name_in_cluster}")
    conditions = {one["type"]: one["status"] for one in definition["status"]["conditions"]}
    assert conditions["Established"] == "True"
    # A schema that is not structural is accepted, and reported here.
    assert conditions.get("NonStructuralSchema", "False") == "False"


def test_its_role_is_sufficient_and_minimal(
    control_plane: ControlPlane, binaries: dict[str, Path], folder: Path
) -> None:
    """With its pod's token it leads, reads, writes statuses, and may do nothing else."""
    client = control_plane.client
    apply(control_plane, binaries, "-k", CRDS.parent / "controller")
    install(client, "podgroup")
    token = control_plane.service_account_token("proreus", "proreus-controller")
    kubeconfig = control_plane.write_kubeconfig(folder / "controller.kubeconfig", token=token)
    process = ControllerProcess(
        kubeconfig, folder, "deployed", ["--leader-elect-resource-namespace=proreus"]
    )
    process.start()
    groups = POD_GROUPS.format("default")
    try:
        client.create(groups, pod_group("rights", minMember=2))
        eventually_status(client, f"{groups}/rights", phase="Pending")
        text = process.get("/metrics", ADMIN_TOKEN)[1]
        assert 'code="403"' not in text
        assert process.terminate(20) == 0
    finally:
        process.kill()
    own = KubeClient.from_kubeconfig(kubeconfig)
    for method, path in (
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/nodes"),
        ("POST", f"{PODS}/a/eviction"),
        ("DELETE", f"{PODS}/a"),
        ("PATCH", f"{groups}/rights"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/proreus/leases/another"),
    ):
        body = {} if method in ("POST", "PATCH", "PUT") else None
        with pytest.raises(ApiFailure) as refused:
            own.call(method, path, body, content_type="application/merge-patch+json")
        assert refused.value.status == 403, path
    own.close()


def test_the_rebalancers_roles_are_sufficient(
    control_plane: ControlPlane, binaries: dict[str, Path], folder: Path
) -> None:
    """With its pod's token it takes a snapshot, writes its record, and evicts."""
    client, rebalancing = control_plane.client, CRDS.parent / "controller-rebalancing"
    apply(control_plane, binaries, "-k", rebalancing)
    apply(control_plane, binaries, "-f", rebalancing / "evictions.yaml")
    for index in (1, 2):
        client.create(objects.NODES, objects.node(index, cpu="4"))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
    for name in ("web-0", "web-1", "web-2"):
        pod = objects.pod(name, "default-scheduler", cpu="1")
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        pod["spec"]["nodeName"] = "node-00001"
        client.create(PODS, pod)
        set_phase(client, name, "Running")
    token = control_plane.service_account_token("proreus", "proreus-controller")
    kubeconfig = control_plane.write_kubeconfig(folder / "rebalancer.kubeconfig", token=token)
    flags = ["--leader-elect-resource-namespace=proreus", "--rebalance-period=60", "--evict"]
    process = ControllerProcess(kubeconfig, folder, "rebalancer", [*flags, "--no-status"])
    process.start()

    def moves() -> list[Json]:
        code, text = process.get("/rebalancing", ADMIN_TOKEN)
        found: list[Json] = json.loads(text)["moves"] if code == 200 else []
        return found

    try:
        advised = eventually(40, "advice", moves)
        assert advised[0]["node"] == "node-00001"
        done = 'evictions_total{result="evicted"} 1'
        eventually(20, "an eviction", lambda: done in process.get("/metrics", ADMIN_TOKEN)[1])
        assert 'code="403"' not in process.get("/metrics", ADMIN_TOKEN)[1]
        assert process.terminate(20) == 0
    finally:
        process.kill()
