"""Claims of pods in a simulation: volumes are bound and provisioned as controllers do it."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import cluster, node, nodes_of, pod, run

from proreus.objects.storage import PERSISTENT_VOLUME_CLAIMS
from proreus.workbench.simulation.scenario import Scenario

WAIT = "WaitForFirstConsumer"


def claiming(name: str, claim: str, **options: Any) -> dict[str, Any]:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return pod(name, volumes=volumes, **options)


def claim(name: str, storage_class: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def storage_class(name: str, provisioner: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": WAIT,
    }


def local_volume(name: str, node_name: str) -> dict[str, Any]:
    field = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [field]}]}},
        },
        "status": {"phase": "Available"},
    }


def test_a_volume_is_provisioned_in_the_zone_of_the_chosen_node() -> None:
    scenario = Scenario(
        cluster(
            node("n0", cpu="1", zone="a"),
            node("n1", zone="b"),
            storage_class("fast", "csi.example.com"),
            claim("data", "fast"),
            claiming("web", "data", cpu="2"),
        )
    )
    result = run(scenario)
    assert nodes_of(result) == {"web": "n1"}
    # At once: no waiting for the ten minutes that PreBind would give a provisioner.
    assert result.virtual_seconds < 5


def test_a_claim_keeps_its_pod_in_the_zone_of_its_volume() -> None:
    """The second pod uses the claim that was bound for the first one."""
    scenario = Scenario(
        cluster(
            node("n0", zone="a"),
            node("n1", cpu="3", zone="b"),
            node("n2", cpu="9", zone="b", unschedulable=True),
            storage_class("fast", "csi.example.com"),
            claim("data", "fast"),
            claiming("first", "data", cpu="3500m", priority=5),
            claiming("second", "data", cpu="1"),
        )
    )
    result = run(scenario)
    assert nodes_of(result) == {"first": "n0"}
    (unplaced,) = result.unplaced
    assert "VolumeBinding" in unplaced.plugins


def test_a_local_volume_is_bound_to_the_claim_that_it_is_reserved_for() -> None:
    scenario = Scenario(
        cluster(
            node("n0"),
            node("n1"),
            storage_class("local", "kubernetes.io/no-provisioner"),
            local_volume("disk", "n1"),
            claim("data", "local"),
            claim("other", "local"),
            claiming("web", "data"),
            claiming("late", "other", priority=-1),
        )
    )
    result = run(scenario)
    assert nodes_of(result) == {"web": "n1"}
    assert [one.pod for one in result.unplaced] == ["shop/late"]
    # The snapshot is as it was.
    assert scenario.objects.of(PERSISTENT_VOLUME_CLAIMS)["shop/data"].spec.volume_name == ""


@pytest.mark.parametrize("zone", ["a", ""])
def test_without_zones_a_volume_stays_at_its_node(zone: str) -> None:
    scenario = Scenario(
        cluster(
            node("n0", zone=zone),
            storage_class("fast", "csi.example.com"),
            claim("data", "fast"),
            claiming("web", "data"),
        )
    )
    assert nodes_of(run(scenario)) == {"web": "n0"}
