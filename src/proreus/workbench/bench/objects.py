"""The objects that operations create: nodes and their strategies, volumes, claims, devices.

They are plain dicts, complete: fields that scheduler_perf patches after creation are set at once.
"""

from __future__ import annotations

import copy
from typing import Any

from proreus.workbench.bench.operations import CreateNodes
from proreus.workbench.bench.templates import JsonObject

HOSTNAME = "kubernetes.io/hostname"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
CLAIM_OF_POD = "resource.kubernetes.io/pod-claim-name"


def take_priority_by_class(pod: JsonObject) -> JsonObject:
    """Replace a pod's priority by a PriorityClass of that value; return the class, or {}.

    scheduler_perf disables the Priority admission plugin, which rejects a bare ``spec.priority``.
    """
    spec = pod["spec"]
    if "priority" not in spec or "priorityClassName" in spec:
        return {}
    value = spec.pop("priority")
    spec["priorityClassName"] = name = f"proreus-bench-{value}"
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def label(obj: JsonObject, key: str, value: str) -> None:
    """Set a label of an object, in place."""
    obj.setdefault("metadata", {}).setdefault("labels", {})[key] = value


def finish_node(node: JsonObject, operation: CreateNodes, index: int, number: int) -> JsonObject:
    """Name a node and apply the operation's strategies to it; return its CSINode, or {}.

    ``index`` counts the nodes of the operation, ``number`` those of the whole workload.
    """
    metadata = node.setdefault("metadata", {})
    metadata["name"] = name = metadata.get("name") or f"{metadata['generateName']}{number:05}"
    labels = metadata.setdefault("labels", {})
    labels[HOSTNAME] = name
    status = node.setdefault("status", {})
    status.setdefault("allocatable", dict(status.get("capacity", {})))
    if strategy := operation.label_node_prepare_strategy:
        labels[strategy.label_key] = strategy.label_values[index % len(strategy.label_values)]
    if unique := operation.unique_node_label_strategy:
        labels[unique.label_key] = f"value-{number}"
    allocatable = operation.node_allocatable_strategy
    if allocatable is None:
        return {}
    status["allocatable"].update(allocatable.node_allocatable)
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": {"count": resources.count}}
        for driver, resources in allocatable.csi_node_allocatable.items()
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": name,
            "annotations": {MIGRATED_PLUGINS: ",".join(allocatable.migrated_plugins)},
        },
        "spec": {"drivers": drivers},
    }


def bound_volume(
    volume: JsonObject, claim: JsonObject, namespace: str, index: int
) -> tuple[JsonObject, JsonObject]:
    """Return copies of a PersistentVolume and a claim that are bound to each other."""
    volume, claim = copy.deepcopy(volume), copy.deepcopy(claim)
    claim.setdefault("metadata", {})["name"] = f"pvc-{index}"
    name = f"{namespace}-vol-{index}"
    volume.setdefault("metadata", {})["name"] = name
    spec = volume["spec"]
    if "csi" in spec:
        spec["csi"]["volumeHandle"] = name
    if "awsElasticBlockStore" in spec:
        spec["awsElasticBlockStore"]["volumeID"] = f"vol-{index}"
    spec["claimRef"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": f"pvc-{index}",
    }
    claim["spec"]["volumeName"] = name
    return volume, claim


def with_claim(pod: JsonObject, index: int) -> JsonObject:
    """Make the volume of claim number ``index`` the pod's only volume, in place."""
    source = {"claimName": f"pvc-{index}"}
    pod["spec"]["volumes"] = [{"name": "vol", "persistentVolumeClaim": source}]
    return pod


def group_of(pod: JsonObject) -> str:
    """Return the name of a pod's PodGroup, or nothing."""
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName", ""))


def is_of_pod(obj: JsonObject) -> bool:
    """Return whether a pod owns an object."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] == "Pod" for owner in owners)


def claims_of_templates(owner: JsonObject) -> list[tuple[str, str]]:
    """Return the claims from templates of a pod or PodGroup, as (name in it, the template's)."""
    return [
        (claim["name"], claim["resourceClaimTemplateName"])
        for claim in owner["spec"].get("resourceClaims") or ()
        if claim.get("resourceClaimTemplateName")
    ]


def claim_for(template: JsonObject, owner: JsonObject, claim: str) -> JsonObject:
    """Return the ResourceClaim that its controller would create for a pod or PodGroup."""
    metadata = owner["metadata"]
    inner = copy.deepcopy(template["spec"])
    made: dict[str, Any] = {"metadata": inner.get("metadata") or {}, "spec": inner["spec"]}
    made["metadata"] |= {
        "name": f"{metadata['name']}-{claim}",
        "namespace": metadata["namespace"],
        "annotations": {CLAIM_OF_POD: claim, **made["metadata"].get("annotations", {})},
        "ownerReferences": [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    return {"apiVersion": template["apiVersion"], "kind": "ResourceClaim", **made}


def resource_slice(driver: str, node: str, devices: int) -> JsonObject:
    """Return the ResourceSlice of a node, with ``devices`` devices that differ only in number."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 0, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"instance-{index}",
                    "attributes": {
                        "model": {"string": "A100"},
                        "family": {"string": "GPU"},
                        "driverVersion": {"version": "1.2.3"},
                        "dra.example.com/numa": {"int": index},
                    },
                    "capacity": {"memory": {"value": "1Gi"}},
                }
                for index in range(devices)
            ],
        },
    }
