"""A volume controller and a provisioner in a thread.

It does their work on claims and volumes, and does not read pods: it completes the binding of
volumes whose claimRef names a claim, and provisions volumes for claims with the selected-node
annotation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from envtest import objects
from envtest.kube_client import KubeClient

Json = dict[str, Any]

DRIVER = "csi.example.com"
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SELECTED = "volume.kubernetes.io/selected-node"
COMPLETED = "pv.kubernetes.io/bind-completed"
ZONE = "topology.kubernetes.io/zone"


def volume(
    name: str, class_name: str, where: Json, size: str = "1Gi", *, csi: bool = False, **spec: Any
) -> Json:
    """Return a PersistentVolume that is accessible from nodes with the labels ``where``."""
    expressions = [{"key": key, "operator": "In", "values": [v]} for key, v in where.items()]
    source = {"csi": {"driver": DRIVER, "volumeHandle": name}} if csi else {"local": {"path": "/d"}}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": class_name,
            **source,
            **({"nodeAffinity": affinity} if where else {}),
            **spec,
        },
    }


class FakeStorage(threading.Thread):
    """Serves the claims of namespace default within a ``with`` block.

    ``add`` creates an object, like ``ScenarioCluster.add``. ``impossible``: claim -> the node on
    which it cannot be provisioned; claims that were given up there are listed in ``given_up``.
    """

    def __init__(
        self,
        client: KubeClient,
        add: Callable[[str, Json], Json],
        impossible: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self.given_up: list[str] = []
        self._client = client
        self._add = add
        self._impossible = impossible or {}
        self._over = threading.Event()
        self._trouble: Exception | None = None

    def __enter__(self) -> FakeStorage:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        if self._trouble:
            raise self._trouble

    def run(self) -> None:
        """Serve all claims every 0.1 s; an error ends the thread and is raised by the block."""
        try:
            while not self._over.wait(0.1):
                self._serve_all()
        except Exception as trouble:
            self._trouble = trouble

    def _serve_all(self) -> None:
        promised = {
            uid: one
            for one in self._client.list(VOLUMES)
            if (uid := one["spec"].get("claimRef", {}).get("uid"))
        }
        for claim in self._client.list(CLAIMS):
            if claim["spec"].get("volumeName"):
                continue
            meta = claim["metadata"]
            found = promised.get(meta["uid"])
            node = meta.get("annotations", {}).get(SELECTED)
            if found is None and node and node == self._impossible.get(meta["name"]):
                self._give_up(meta["name"])
            elif found is None and node:
                found = self._make(claim, node)
            if found is not None:
                bind(self._client, meta["name"], found["metadata"]["name"])

    def _give_up(self, claim: str) -> None:
        """Remove the selected node, as a provisioner does that cannot serve it."""
        self.given_up.append(claim)
        marks = {"metadata": {"annotations": {SELECTED: None}}}
        self._client.patch(f"{CLAIMS}/{claim}", marks)

    def _make(self, claim: Json, node: str) -> Json:
        zone = self._client.get(f"{objects.NODES}/{node}")["metadata"]["labels"][ZONE]
        name = f"made-for-{claim['metadata']['name']}"
        ref = {"kind": "PersistentVolumeClaim", "namespace": "default"}
        ref |= {key: claim["metadata"][key] for key in ("name", "uid")}
        class_name = claim["spec"]["storageClassName"]
        return self._add(VOLUMES, volume(name, class_name, {ZONE: zone}, csi=True, claimRef=ref))


def bind(client: KubeClient, claim: str, volume_name: str) -> None:
    """Set the volume of a claim, the volume controller's last step."""
    marks = {"metadata": {"annotations": {COMPLETED: "yes"}}}
    client.patch(f"{CLAIMS}/{claim}", {**marks, "spec": {"volumeName": volume_name}})
