"""Creates the cluster and then pods of all kinds, at a steady rate, whatever the apiserver does."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from envtest import fake_storage, objects
from envtest.kube_client import ApiFailure, KubeClient

from fault_run.judge import Judge
from fault_run.pod_kinds import (
    CONTENDED,
    CONTENDED_NODES,
    KIND,
    LOCAL,
    POD_KINDS,
    PODS,
    POOL,
    PRIORITY_HIGH,
    PRIORITY_LOW,
    PROVISIONED,
    Bundle,
)

Json = dict[str, Any]

NODES = 40
DEVICE_NODES, DEVICES_A_NODE = range(10), 8
VOLUME_NODES, VOLUMES_A_NODE = range(10, 20), 5
OPEN_NODES = range(NODES - CONTENDED_NODES)

DRIVER = "gpu.example.com"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

_TICK_SECONDS = 0.1


def create_cluster(client: KubeClient) -> None:
    """Create nodes, devices, volumes, priorities and budgets."""
    for index in range(NODES):
        pool = "open" if index in OPEN_NODES else "contended"
        taints = [] if index in OPEN_NODES else [CONTENDED]
        labels = {POOL: pool, "example.com/rack": f"r{index % 4}"}
        node = objects.node(index, cpu="32", memory="64Gi", labels=labels, taints=taints)
        client.create(objects.NODES, node)
    for name, value in ((PRIORITY_LOW, -10), (PRIORITY_HIGH, 1000)):
        client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    waits = {"volumeBindingMode": "WaitForFirstConsumer"}
    provisioners = {LOCAL: "kubernetes.io/no-provisioner", PROVISIONED: fake_storage.DRIVER}
    for name, provisioner in provisioners.items():
        body = {"metadata": {"name": name}, "provisioner": provisioner}
        client.create(STORAGE_CLASSES, body | waits)
    client.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
    for index in DEVICE_NODES:
        client.create(SLICES, _slice(f"node-{index:05}"))
    for index in VOLUME_NODES:
        for number in range(VOLUMES_A_NODE):
            create_volume(client, f"node-{index:05}", f"volume-{index}-{number}-0", LOCAL)
    for budget, allowed in (("0", 0), ("1", 20)):
        selector = {"matchLabels": {"budget": budget}}
        spec = {"minAvailable": 1, "selector": selector}
        client.create(BUDGETS, {"metadata": {"name": f"budget-{budget}"}, "spec": spec})
        status = {"disruptionsAllowed": allowed, "currentHealthy": 20, "desiredHealthy": 1}
        status |= {"expectedPods": 20}
        client.patch(f"{BUDGETS}/budget-{budget}/status", {"status": status})


def create_volume(client: KubeClient, node: str, name: str, class_name: str, **spec: Any) -> None:
    """Create a volume on a node; without a ``claimRef`` it is free."""
    where = {"kubernetes.io/hostname": node}
    client.create(fake_storage.VOLUMES, fake_storage.volume(name, class_name, where, **spec))
    status = {"status": {"phase": "Available"}}
    client.patch(f"{fake_storage.VOLUMES}/{name}/status", status)


def _slice(node: str) -> Json:
    devices = [{"name": f"d{number}"} for number in range(DEVICES_A_NODE)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": node}, "spec": spec}


class Load(threading.Thread):
    """Creates ``pods_a_second`` while ``active``; ``created`` has the pods by uid."""

    def __init__(
        self, client: KubeClient, judge: Judge, rng: random.Random, pods_a_second: float
    ) -> None:
        super().__init__(daemon=True)
        self.active = True
        self.created: dict[str, str] = {}
        self.by_kind: Counter[str] = Counter()
        self._client = client
        self._judge = judge
        self._rng = rng
        self._pods_a_second = pods_a_second
        self._over = threading.Event()
        self._number = 0

    def stop(self) -> None:
        """End after the pod that is being created."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Create pods until stopped; after a pause of the apiserver it catches up."""
        owed, last = 0.0, time.monotonic()
        while not self._over.wait(_TICK_SECONDS):
            now = time.monotonic()
            owed += (now - last) * self._pods_a_second if self.active else 0.0
            last = now
            for _ in range(min(int(owed), 20)):
                created = self.create_one()
                owed -= created
                if not created:  # all kinds have as many pods as there may be
                    break

    def create_one(self, kind: str | None = None) -> int:
        """Create a bundle of pods and return their number; a random ``kind`` below its limit."""
        kind = kind or self._draw()
        if kind is None:
            return 0
        self._number += 1
        bundle = POD_KINDS[kind].make(f"{kind}-{self._number:06}", self._rng)
        self._create(bundle)
        self.by_kind[kind] += len(bundle.pods)
        return len(bundle.pods)

    def _draw(self) -> str | None:
        living = Counter(pod["metadata"].get("labels", {}).get(KIND) for pod in self._judge.pods())
        contended = living["filler"] + living["preemptor"]
        free = {
            name: kind.weight
            for name, kind in POD_KINDS.items()
            if living[name] < kind.at_most
            and not (name == "filler" and contended >= POD_KINDS["filler"].at_most)
        }
        return self._rng.choices(list(free), list(free.values()))[0] if free else None

    def _create(self, bundle: Bundle) -> None:
        for path, body in bundle.before:
            self._create_surely(path, body)
        for pod in bundle.pods:
            made = self._create_surely(PODS, pod)
            self.created[made["metadata"]["uid"]] = made["metadata"]["name"]

    def _create_surely(self, path: str, body: Json) -> Json:
        """Create an object, however long the apiserver is away."""
        while True:
            try:
                return self._client.create(path, body)
            except ApiFailure as failure:
                if failure.status == 409:  # an earlier attempt, whose answer was lost
                    try:
                        return self._client.get(f"{path}/{body['metadata']['name']}")
                    except (ApiFailure, OSError):
                        pass
                elif failure.status < 500 and failure.status not in (403, 429):
                    raise
            except OSError:
                pass
            time.sleep(0.2)
