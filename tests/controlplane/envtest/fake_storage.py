"""A volume controller and a provisioner in a thread.

It does to claims and volumes what they do, and knows nothing of pods: it completes the binding of
volumes that are promised to a claim, and makes volumes for claims whose selected-node annotation
asks for them.
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
    """Return a volume that is reachable from nodes with the labels ``where``."""
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
    """Serves the claims of namespace default from ``with`` on until the block's end.

    ``add`` creates an object, as ``ScenarioCluster.add`` does. ``impossible``: claims, each with
    the node on which it cannot be served; a claim that is given up there is noted in ``given_up``.
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
        """Look every tenth of a second; trouble ends it and is raised at the block's end."""
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
        for wish in self._client.list(CLAIMS):
            if wish["spec"].get("volumeName"):
                continue
            meta = wish["metadata"]
            found = promised.get(meta["uid"])
            node = meta.get("annotations", {}).get(SELECTED)
            if found is None and node and node == self._impossible.get(meta["name"]):
                self._give_up(meta["name"])
            elif found is None and node:
                found = self._make(wish, node)
            if found is not None:
                bind(self._client, meta["name"], found["metadata"]["name"])

    def _give_up(self, claim: str) -> None:
        """Ask for another node, as a provisioner does that cannot serve this one."""
        self.given_up.append(claim)
        marks = {"metadata": {"annotations": {SELECTED: None}}}
        self._client.patch(f"{CLAIMS}/{claim}", marks)

    def _make(self, wish: Json, node: str) -> Json:
        zone = self._client.get(f"{objects.NODES}/{node}")["metadata"]["labels"][ZONE]
        name = f"made-for-{wish['metadata']['name']}"
        ref = {"kind": "PersistentVolumeClaim", "namespace": "default"}
        ref |= {key: wish["metadata"][key] for key in ("name", "uid")}
        class_name = wish["spec"]["storageClassName"]
        return self._add(VOLUMES, volume(name, class_name, {ZONE: zone}, csi=True, claimRef=ref))


def bind(client: KubeClient, claim: str, volume_name: str) -> None:
    """Tell a claim of its volume, as the volume controller does last."""
    marks = {"metadata": {"annotations": {COMPLETED: "yes"}}}
    client.patch(f"{CLAIMS}/{claim}", {**marks, "spec": {"volumeName": volume_name}})
