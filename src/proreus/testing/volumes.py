"""Builders of volumes, claims and related objects for tests, in one line each, as in YAML.

Defaults are those of an ordinary cluster; ``spec`` overrides all other parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proreus.offline.api import JsonObject

BIND_COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}
DRIVER = "csi.example.com"


def make_volume(
    name: str,
    storage: str = "10Gi",
    class_name: str = "wait",
    *,
    claim: str = "",
    claim_uid: str | None = None,
    where: Mapping[str, Sequence[str]] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    source: Mapping[str, Any] | None = None,
    phase: str = "",
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> JsonObject:
    """Return a PersistentVolume.

    ``claim``: ``namespace/name`` of its claimRef, with the UID that ``make_claim`` sets unless
    ``claim_uid`` is given. ``where``: node labels of its node affinity, with their values.
    """
    made: dict[str, Any] = {
        "capacity": {"storage": storage},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_name,
        **(source or {"csi": {"driver": DRIVER, "volumeHandle": f"handle-of-{name}"}}),
    }
    if claim:
        namespace, _, claim_name = claim.partition("/")
        uid = f"uid-of-{claim}" if claim_uid is None else claim_uid
        made["claimRef"] = {"namespace": namespace, "name": claim_name, "uid": uid}
    if where is not None:
        expressions = [
            {"key": key, "operator": "In", "values": list(values)} for key, values in where.items()
        ]
        terms = [{"matchExpressions": expressions}]
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            **metadata,
        },
        "spec": {**made, **(spec or {})},
        "status": {"phase": phase or ("Bound" if claim else "Available")},
    }


def make_claim(
    name: str,
    storage: str | None = "10Gi",
    class_name: str | None = "wait",
    *,
    namespace: str = "default",
    volume: str = "",
    selected_node: str = "",
    modes: Sequence[str] = ("ReadWriteOnce",),
    owner_uid: str = "",
    annotations: Mapping[str, str] | None = None,
    phase: str = "",
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> JsonObject:
    """Return a PersistentVolumeClaim.

    ``volume``: the volume that it is bound to, binding completed. ``owner_uid``: of the pod that
    owns it (ephemeral volumes). Its UID is ``uid-of-<namespace>/<name>``.
    """
    marks = dict(annotations or {})
    if volume:
        marks |= BIND_COMPLETED
    if selected_node:
        marks["volume.kubernetes.io/selected-node"] = selected_node
    owner = {"apiVersion": "v1", "kind": "Pod", "uid": owner_uid, "controller": True}
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{namespace}/{name}",
            "annotations": marks,
            "ownerReferences": [owner] if owner_uid else [],
            **metadata,
        },
        "spec": {
            "accessModes": list(modes),
            "resources": {"requests": {} if storage is None else {"storage": storage}},
            "storageClassName": class_name,
            "volumeName": volume,
            **(spec or {}),
        },
        "status": {"phase": phase or ("Bound" if volume else "Pending")},
    }


def make_storage_class(
    name: str = "wait",
    provisioner: str = DRIVER,
    mode: str | None = "WaitForFirstConsumer",
    *,
    allowed: Sequence[Mapping[str, Sequence[str]]] = (),
) -> JsonObject:
    """Return a StorageClass; ``allowed``: its allowedTopologies, each a map of label to values."""
    return {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        "allowedTopologies": [
            {
                "matchLabelExpressions": [
                    {"key": key, "values": list(values)} for key, values in term.items()
                ]
            }
            for term in allowed
        ],
    }


def make_csi_node(
    name: str,
    limits: Mapping[str, int | None] | None = None,
    *,
    migrated: Sequence[str] = (),
) -> JsonObject:
    """Return a CSINode. ``limits`` has the number of volumes by driver, None for no limit."""
    mark = "storage.alpha.kubernetes.io/migrated-plugins"
    return {
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": {mark: ",".join(migrated)} if migrated else {}},
        "spec": {
            "drivers": [
                {"name": driver, "allocatable": None if limit is None else {"count": limit}}
                for driver, limit in (limits or {}).items()
            ]
        },
    }


def make_capacity(
    name: str,
    capacity: str | None,
    where: Mapping[str, str] | None,
    class_name: str = "wait",
    *,
    largest: str | None = None,
) -> JsonObject:
    """Return a CSIStorageCapacity; ``where``: labels of its nodes, {} for all, None for none."""
    return {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "drivers"},
        "storageClassName": class_name,
        "capacity": capacity,
        "maximumVolumeSize": largest,
        "nodeTopology": None if where is None else {"matchLabels": dict(where)},
    }


def make_attachment(
    name: str, node_name: str, volume: str | None, attacher: str = DRIVER
) -> JsonObject:
    """Return a VolumeAttachment of a volume to a node."""
    return {
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {
            "attacher": attacher,
            "nodeName": node_name,
            "source": {"persistentVolumeName": volume},
        },
    }


def spec_with_claims(*names: str) -> dict[str, Any]:
    """Return a pod's ``spec`` with one volume for each named claim."""
    return {
        "volumes": [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}}
            for number, name in enumerate(names)
        ]
    }
