"""Finds the workload of a pod by its owner references."""

from __future__ import annotations

from typing import NamedTuple

from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.snapshot import MIRROR_POD_ANNOTATION
from proreus.objects.meta import ObjectMeta, OwnerReference, controller_of
from proreus.objects.pod import Pod
from proreus.objects.workloads import REPLICA_SETS

_HASH_LABEL = "pod-template-hash"


class WorkloadKey(NamedTuple):
    """A workload: ``deployment/shop/web`` as text. ``kind`` is in lower case."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)


class Controllers:
    """Finds the workloads of pods. A Deployment is found through its ReplicaSet."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._replica_sets = objects.of(REPLICA_SETS)
        self._of_replica_set: dict[tuple[str, str], WorkloadKey] = {}

    def workload_of(self, pod: Pod) -> WorkloadKey | None:
        """Return the workload of a pod; None for a pod that nobody creates anew."""
        meta = pod.metadata
        owner = controller_of(meta)
        if owner is None or owner.kind == "Node":
            return None
        if owner.kind != "ReplicaSet":
            return WorkloadKey(owner.kind.lower(), meta.namespace, owner.name)
        key = meta.namespace, owner.name
        found = self._of_replica_set.get(key)
        if found is None:
            found = self._of_replica_set[key] = self._owner_of_replica_set(meta, owner)
        return found

    def _owner_of_replica_set(self, meta: ObjectMeta, owner: OwnerReference) -> WorkloadKey:
        replica_set = self._replica_sets.get(f"{meta.namespace}/{owner.name}")
        if replica_set is not None:
            above = controller_of(replica_set.metadata)
            if above is not None:
                return WorkloadKey(above.kind.lower(), meta.namespace, above.name)
        # A dump of pods alone: a Deployment names its ReplicaSets after the hash of its template.
        suffix = f"-{meta.labels.get(_HASH_LABEL, '')}"
        if replica_set is None and len(suffix) > 1 and owner.name.endswith(suffix):
            return WorkloadKey("deployment", meta.namespace, owner.name.removesuffix(suffix))
        return WorkloadKey("replicaset", meta.namespace, owner.name)


def is_daemon_pod(pod: Pod) -> bool:
    """Return whether a pod belongs to its node: of a DaemonSet, or a static one."""
    owner = controller_of(pod.metadata)
    if MIRROR_POD_ANNOTATION in pod.metadata.annotations:
        return True
    return owner is not None and owner.kind in ("DaemonSet", "Node")
