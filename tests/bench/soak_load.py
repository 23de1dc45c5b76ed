"""The clusters of a soak run, and its load: pods of all kinds that come and go, and nodes that do.

Names, owners and label values are never used again, as in a cluster in which workloads come and go:
whatever keeps something by label, owner, pod or node would grow.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from envtest.binaries import find_or_build
from envtest.control_plane import ADMIN_TOKEN, ControlPlane

from bench.shapes import HOST, ZONE, node, pod
from proreus.workbench.sandbox import ListenOptions, Sandbox

Json = dict[str, Any]

NODES, POPULATION = 200, 2_000
PODS_AN_OWNER = 50
SECONDS_A_NODE = 10.0


class Cluster(Protocol):
    """Where pods and nodes are created and deleted."""

    kubeconfig: Path
    token: str
    pods_an_hour: int

    def apply(self, create: list[Json], delete: list[Json]) -> None:
        """Create and delete objects; return when that is done."""
        ...

    def close(self) -> None:
        """End the cluster."""
        ...


class EmbeddedCluster:
    """The sandbox, on an event loop in a thread of its own."""

    pods_an_hour = 500_000

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._sandbox = Sandbox(0, listen=ListenOptions(tls=False), kubelet=None)
        self._call(self._sandbox.__aenter__())
        self.kubeconfig = self._sandbox.write_kubeconfig(folder / "kubeconfig")
        self.token = self._sandbox.token

    def apply(self, create: list[Json], delete: list[Json]) -> None:
        """See ``Cluster``."""
        self._call(self._apply(create, delete))

    async def _apply(self, create: list[Json], delete: list[Json]) -> None:
        store = self._sandbox.store
        for obj in create:
            store.create(_plural(obj), obj, keep_status=obj["kind"] == "Node")
        for obj in delete:
            store.delete(_plural(obj), obj["metadata"]["name"], _namespace(obj), grace_seconds=0)

    def close(self) -> None:
        """See ``Cluster``."""
        self._call(self._sandbox.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


class RealCluster:
    """etcd and kube-apiserver."""

    pods_an_hour = 50_000

    def __init__(self, folder: Path) -> None:
        binaries = find_or_build(["etcd", "kube-apiserver"])
        self._plane = ControlPlane(binaries, folder / "plane", audit=False)
        self._plane.start()
        self.kubeconfig = self._plane.write_kubeconfig(folder / "token", token=ADMIN_TOKEN)
        self.token = ADMIN_TOKEN

    def apply(self, create: list[Json], delete: list[Json]) -> None:
        """See ``Cluster``."""
        client = self._plane.client
        client.in_parallel(lambda obj: client.create(_path(obj), obj), create)
        client.in_parallel(
            lambda obj: client.delete(
                f"{_path(obj)}/{obj['metadata']['name']}", gracePeriodSeconds="0"
            ),
            delete,
        )

    def close(self) -> None:
        """See ``Cluster``."""
        self._plane.stop()


CLUSTERS: dict[str, Callable[[Path], Cluster]] = {"embedded": EmbeddedCluster, "real": RealCluster}


class Churn:
    """Creates and deletes so many objects that the rate and the population are constant."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._alive: deque[Json] = deque()
        self._nodes: deque[Json] = deque()
        self.created = self.deleted = self.nodes = 0
        first = [node(number) for number in range(NODES)]
        self._nodes.extend(first)
        cluster.apply(list(first), [])

    def advance(self, second: float) -> None:
        """Do what is due at a second of the run."""
        due = POPULATION + int(second * self._cluster.pods_an_hour / 3_600)
        create = [_pod(number) for number in range(self.created, due)]
        self._alive.extend(create)
        self.created = due
        delete = [self._alive.popleft() for _ in range(max(0, len(self._alive) - POPULATION))]
        self.deleted += len(delete)
        while self.nodes < second / SECONDS_A_NODE:
            self.nodes += 1
            new = node(NODES + self.nodes)
            self._nodes.append(new)
            create.append(new)
            delete.append(self._nodes.popleft())
        self._cluster.apply(create, delete)


def _pod(number: int) -> Json:
    """Return a pod; each tenth is of another kind."""
    owner = f"owner-{number // PODS_AN_OWNER}"
    made = pod(f"pod-{number}", _spec(number % 10, owner), labels={"app": owner, owner: "yes"})
    del made["metadata"]["uid"]
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": owner,
            "uid": owner,
            "controller": True,
        }
    ]
    return made


def _spec(kind: int, owner: str) -> Json:
    selector = {"matchLabels": {"app": owner}}
    if kind == 0:
        return {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 5,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": selector,
                }
            ]
        }
    if kind in (1, 2):
        term = {"labelSelector": selector, "topologyKey": HOST}
        anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        return {"affinity": {"podAntiAffinity" if kind == 1 else "podAffinity": anti}}
    if kind == 3:  # fits nowhere: fails, waits, is deleted
        return {"nodeSelector": {owner: "there-is-none"}}
    if kind == 4:
        terms = [{"matchExpressions": [{"key": owner, "operator": "DoesNotExist"}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {"affinity": {"nodeAffinity": required}}
    if kind == 5:
        return {"tolerations": [{"key": owner, "operator": "Exists"}]}
    return {}


def _plural(obj: Json) -> str:
    return {"Pod": "pods", "Node": "nodes"}[obj["kind"]]


def _namespace(obj: Json) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _path(obj: Json) -> str:
    if obj["kind"] == "Node":
        return "/api/v1/nodes"
    return f"/api/v1/namespaces/{_namespace(obj)}/pods"
