"""Volumes on a real apiserver: matched, provisioned, and provisioned elsewhere after a failure.

The volume controller and the provisioner are ``fake_storage``. ``--scheduler kube-scheduler`` runs
the same with the original.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from envtest import objects
from envtest.control_plane import ControlPlane
from envtest.fake_storage import (
    CLAIMS,
    DRIVER,
    SELECTED,
    VOLUMES,
    ZONE,
    FakeStorage,
    volume,
)
from envtest.kube_client import KubeClient
from envtest.schedulers import RunScheduler, configuration, profile
from envtest.waiting import eventually

Json = dict[str, Any]

ME = "with-volumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
HOST = "kubernetes.io/hostname"
PODS = objects.PODS.format("default")

FULL_NODE, BROKEN_NODE = "node-00000", "node-00001"
"""A node with a limit of one volume, and one on which ``UNLUCKY`` cannot be provisioned."""
UNLUCKY = "unlucky"
TAINT = {"key": "full", "effect": "NoSchedule"}


def claim(name: str, class_name: str, **metadata: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": class_name,
        },
    }


def with_claims(name: str, *claims: str, **options: Any) -> Json:
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": one}}
        for number, one in enumerate(claims)
    ]
    spec = {"volumes": volumes, **options.pop("spec", {})}
    return objects.pod(name, ME, spec=spec, **options)


@pytest.fixture(scope="module")
def storage(
    control_plane: ControlPlane, run_module_scheduler: RunScheduler
) -> Iterator[FakeStorage]:
    client = control_plane.client
    tainted = {0: [TAINT]}
    nodes = [objects.node(index, taints=tainted.get(index, ())) for index in range(6)]
    client.create_all(objects.NODES, nodes)
    for name, provisioner in (("made", DRIVER), ("local", "kubernetes.io/no-provisioner")):
        wait = {"volumeBindingMode": "WaitForFirstConsumer"}
        client.create(CLASSES, {"metadata": {"name": name}, "provisioner": provisioner, **wait})
    for index in range(6):
        name = f"node-{index:05}"
        driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [ZONE]}
        driver["allocatable"] = {"count": 1 if name == FULL_NODE else 10}
        client.create(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": [driver]}})
    run_module_scheduler(configuration([profile(ME)], control_plane.kubeconfig))
    with FakeStorage(client, client.create, {UNLUCKY: BROKEN_NODE}) as fake:
        yield fake


def node_of(client: KubeClient, name: str) -> str:
    found = client.get(f"{PODS}/{name}")["spec"]
    return str(found.get("nodeName", ""))


def placed(client: KubeClient, name: str, seconds: float = 30) -> str:
    return eventually(seconds, f"{name} on a node", lambda: node_of(client, name))


def create(client: KubeClient, *bodies: Json) -> None:
    for body in bodies:
        client.create(PODS if "containers" in body["spec"] else CLAIMS, body)


def mark_of_volume(client: KubeClient, name: str) -> tuple[Json, Json]:
    found = client.get(f"{VOLUMES}/{name}")
    return found["spec"]["claimRef"], found["metadata"].get("annotations", {})


def test_volumes_are_provisioned_in_the_zone_of_the_pod(
    control_plane: ControlPlane, storage: Any
) -> None:
    client = control_plane.client
    there = {"nodeSelector": {HOST: "node-00002"}}
    create(
        client, claim("a", "made"), claim("b", "made"), with_claims("made", "a", "b", spec=there)
    )
    assert placed(client, "made") == "node-00002"
    for name in ("a", "b"):
        found = client.get(f"{CLAIMS}/{name}")
        assert found["metadata"]["annotations"][SELECTED] == "node-00002"
    # The next pod of the volume must be bound in its zone.
    create(client, with_claims("next", "a"))
    zone = client.get(f"{objects.NODES}/{placed(client, 'next')}")["metadata"]["labels"][ZONE]
    assert zone == objects.ZONES[2]


def test_an_available_volume_is_bound(control_plane: ControlPlane, storage: Any) -> None:
    client = control_plane.client
    for name, node in (("disk-3", "node-00003"), ("disk-4", "node-00004")):
        client.create(VOLUMES, volume(name, "local", {HOST: node}))
        status = {"status": {"phase": "Available"}}
        client.patch(f"{VOLUMES}/{name}/status", status)
    create(client, claim("l1", "local"), claim("l2", "local"))
    create(client, with_claims("local-1", "l1"), with_claims("local-2", "l2"))
    nodes = {placed(client, "local-1"), placed(client, "local-2")}
    assert nodes == {"node-00003", "node-00004"}
    ref, marks = mark_of_volume(client, "disk-3")
    assert (ref["kind"], ref["apiVersion"], ref["namespace"]) == (
        "PersistentVolumeClaim",
        "v1",
        "default",
    )
    assert marks["pv.kubernetes.io/bound-by-controller"] == "yes"
    spec = client.get(f"{VOLUMES}/disk-3")["spec"]
    assert spec["local"] == {"path": "/d"}
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    # No disk is left: a third pod waits until another is created.
    create(client, claim("l3", "local"), with_claims("local-3", "l3"))
    waiting = f"{PODS}/local-3"
    text = "didn't find available persistent volumes to bind"
    eventually(30, "a reason", lambda: text in str(client.get(waiting)["status"]))
    client.create(VOLUMES, volume("disk-5", "local", {HOST: "node-00005"}))
    client.patch(f"{VOLUMES}/disk-5/status", {"status": {"phase": "Available"}})
    assert placed(client, "local-3") == "node-00005"


def test_a_pod_is_rescheduled_when_the_provisioner_gives_up(
    control_plane: ControlPlane, storage: FakeStorage
) -> None:
    client = control_plane.client
    preference = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [BROKEN_NODE]}]}
    preferred = [{"weight": 100, "preference": preference}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    create(client, claim(UNLUCKY, "made"))
    create(client, with_claims("again", UNLUCKY, spec={"affinity": affinity}))
    eventually(30, "a first try", lambda: UNLUCKY in storage.given_up)
    assert not node_of(client, "again")
    client.patch(f"{objects.NODES}/{BROKEN_NODE}", {"spec": {"unschedulable": True}})
    try:
        assert placed(client, "again", 60) != BROKEN_NODE
    finally:
        client.patch(f"{objects.NODES}/{BROKEN_NODE}", {"spec": {"unschedulable": None}})


def test_a_claim_created_later_wakes_its_pod(control_plane: ControlPlane, storage: Any) -> None:
    client = control_plane.client
    ephemeral = {"volumeClaimTemplate": {"spec": claim("x", "made")["spec"]}}
    volumes = [{"name": "scratch", "ephemeral": ephemeral}]
    create(client, objects.pod("late", ME, spec={"volumes": volumes}))
    pod = f"{PODS}/late"
    text = "waiting for ephemeral volume controller to create"
    eventually(30, "a reason", lambda: text in str(client.get(pod)["status"]))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "late", "controller": True}
    owner["uid"] = client.get(pod)["metadata"]["uid"]
    create(client, claim("late-scratch", "made", ownerReferences=[owner]))
    assert placed(client, "late")


def test_a_node_has_the_volume_limit_of_its_driver(
    control_plane: ControlPlane, storage: Any
) -> None:
    client = control_plane.client
    there = {"nodeSelector": {HOST: FULL_NODE}, "tolerations": [{"operator": "Exists"}]}
    for name in ("full-1", "full-2"):
        create(client, claim(name, "made"))
    create(client, with_claims("full-1", "full-1", spec=there))
    assert placed(client, "full-1") == FULL_NODE
    create(client, with_claims("full-2", "full-2", spec=there))
    second = f"{PODS}/full-2"
    eventually(
        30, "a reason", lambda: "exceed max volume count" in str(client.get(second)["status"])
    )
    client.delete(f"{PODS}/full-1", {"gracePeriodSeconds": 0})
    assert placed(client, "full-2") == FULL_NODE
