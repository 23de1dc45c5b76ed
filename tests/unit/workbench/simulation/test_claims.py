"""Claims of pods that come, go, and come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clusters import cluster, node, nodes_of, pod, run, written

from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.objects.resource_claims import RESOURCE_CLAIMS
from proreus.workbench.simulation.scenario import Scenario

DEVICES = "resource.k8s.io/v1"
SPEC = {
    "devices": {
        "requests": [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": "gpu",
                    "allocationMode": "ExactCount",
                    "count": 1,
                },
            }
        ]
    }
}


def gpu_cluster(*objects: dict[str, Any], nodes: int = 2) -> ClusterObjects:
    """Nodes with one GPU each."""
    slices = [
        {
            "apiVersion": DEVICES,
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice-n{number}"},
            "spec": {
                "driver": "gpu.example.com",
                "pool": {"name": f"n{number}", "generation": 1, "resourceSliceCount": 1},
                "nodeName": f"n{number}",
                "devices": [{"name": "gpu-0"}],
            },
        }
        for number in range(nodes)
    ]
    device_class = {"apiVersion": DEVICES, "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    template = {
        "apiVersion": DEVICES,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu", "namespace": "shop"},
        "spec": {"spec": SPEC},
    }
    return cluster(
        *(node(f"n{number}") for number in range(nodes)), *slices, device_class, template, *objects
    )


def claiming(name: str, **options: Any) -> dict[str, Any]:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    made = pod(name, resourceClaims=claims, **options)
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return made


def holding(name: str, on: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A running pod and the claim that was made for it."""
    made = claiming(name, on=on, of="ReplicaSet/train")
    made["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
    device = {"request": "gpu", "driver": "gpu.example.com", "pool": on, "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": [on]}
    claim = {
        "apiVersion": DEVICES,
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{name}-gpu",
            "namespace": "shop",
            "uid": f"uid-claim-{name}",
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": SPEC,
        "status": {
            "allocation": {
                "devices": {"results": [device]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
        },
    }
    return made, claim


def test_added_pods_get_claims_of_their_templates(tmp_path: Path) -> None:
    scenario = Scenario(gpu_cluster())
    scenario.add_file(written(tmp_path, "pods.yaml", claiming("train")), 3)
    result = run(scenario)
    assert sorted(nodes_of(result).values()) == ["n0", "n1"]
    (unplaced,) = result.unplaced
    assert unplaced.plugins == ("DynamicResources",)


def test_a_drained_pod_leaves_its_device_and_gets_another() -> None:
    scenario = Scenario(gpu_cluster(*holding("train", "n0")))
    scenario.drain("n0")
    assert nodes_of(run(scenario)) == {"train": "n1"}
    # The snapshot keeps what was allocated there.
    assert scenario.objects.of(RESOURCE_CLAIMS)["shop/train-gpu"].status.allocation is not None


def test_a_removed_pod_makes_its_device_free() -> None:
    scenario = Scenario(gpu_cluster(*holding("train", "n0"), claiming("next"), nodes=1))
    assert nodes_of(run(scenario)) == {}
    scenario.remove("pod/shop/train")
    assert nodes_of(run(scenario)) == {"next": "n0"}


def test_a_victim_makes_its_device_free() -> None:
    waiting = claiming("waiting", cpu="0", priority=5)
    objects = gpu_cluster(*holding("train", "n0"), waiting, pod("large", "4", priority=9), nodes=1)
    result = run(Scenario(objects))
    # "large" needs the CPU of "train", and "waiting" gets the GPU that was its own.
    assert nodes_of(result) == {"waiting": "n0", "large": "n0"}
    assert [one.pod for one in result.unplaced] == ["shop/train"]


STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast"},
    "provisioner": "csi.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
CLAIM_SPEC = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "fast",
    "resources": {"requests": {"storage": "1Gi"}},
}


def test_pods_of_a_stateful_set_get_their_volumes(tmp_path: Path) -> None:
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {
            "replicas": 2,
            "template": {"spec": {"containers": [{"name": "app"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": CLAIM_SPEC}],
        },
    }
    scenario = Scenario(cluster(node("n0"), STORAGE_CLASS))
    scenario.add_file(written(tmp_path, "db.yaml", stateful_set))
    assert nodes_of(run(scenario)) == {"db-0": "n0", "db-1": "n0"}


def test_ephemeral_volumes_of_added_pods_are_claimed(tmp_path: Path) -> None:
    ephemeral = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM_SPEC}}}
    scenario = Scenario(cluster(node("n0"), STORAGE_CLASS))
    scenario.add_file(written(tmp_path, "pod.yaml", pod("web", volumes=[ephemeral])))
    assert nodes_of(run(scenario)) == {"web": "n0"}


def test_an_ephemeral_volume_does_not_keep_an_evicted_pod_in_its_zone() -> None:
    volume = {"name": "tmp", "ephemeral": {}}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "uid-web"}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "web-tmp",
            "namespace": "shop",
            "uid": "uid-claim",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {**CLAIM_SPEC, "volumeName": "pv"},
        "status": {"phase": "Bound"},
    }
    persistent_volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "storageClassName": "fast",
            "claimRef": {"namespace": "shop", "name": "web-tmp", "uid": "uid-claim"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
        },
        "status": {"phase": "Bound"},
    }
    web = pod("web", on="n0", of="ReplicaSet/web", volumes=[volume])
    scenario = Scenario(
        cluster(
            *(node("n0", zone="a"), node("n1", zone="b")),
            *(STORAGE_CLASS, claim, persistent_volume, web),
        )
    )
    scenario.drain("n0")
    result = run(scenario)
    assert nodes_of(result) == {"web": "n1"}, result.unplaced
