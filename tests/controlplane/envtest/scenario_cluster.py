"""One scheduler's cluster, set up for a scenario, told as a story, and cleared for the next one.

Two stages with one scheduler each play the same scenario; whatever their stories differ in is a
difference between the schedulers. So names are the same on both, and the story leaves out only what
differs by nature: UIDs, versions, times.
"""

from __future__ import annotations

import json
import time
from typing import Any

from envtest import assertions, objects
from envtest.kube_client import ApiFailure, KubeClient
from envtest.recorded_events import recorded_events
from envtest.waiting import eventually

Json = dict[str, Any]

SCHEDULER = "default-scheduler"
NOBODY = "nobody"
"""The scheduler of pods that a scenario puts onto nodes itself."""

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
NAMESPACES = "/api/v1/namespaces"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

PRIORITIES = {"low": 10, "middle": 100, "high": 1000, "top": 10000, "polite": 1000}
"""Classes that a stage has; pods of ``polite`` never preempt."""

SETTLE_SECONDS = 0.5
"""Nothing tells when a scheduler has seen a PodDisruptionBudget or a namespace's labels."""

QUIET_SECONDS = 0.2
CONNECT_TIMEOUT_SECONDS = 20

_NO_FINALIZERS = {"metadata": {"finalizers": None}}
_NOW = {"gracePeriodSeconds": 0}


class ScenarioCluster:
    """A cluster of one scheduler. Everything that is added through it is gone after ``clear``."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self._added: list[str] = []
        self._pods: list[str] = []
        self._uids: dict[str, str] = {}
        """Of pods and PodGroups, as scenarios use their names again: UID -> name."""
        self._notes: list[tuple[str, Json]] = []

    def prepare(self) -> None:
        """Add what every scenario may use."""
        for name, value in PRIORITIES.items():
            policy = "Never" if name == "polite" else "PreemptLowerPriority"
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            self.client.create(PRIORITY_CLASSES, body)

    def add(self, path: str, body: Json) -> Json:
        """Create an object."""
        made = self.client.create(path, body)
        self._added.append(f"{path}/{made['metadata']['name']}")
        if path == GROUPS:
            self._uids[made["metadata"]["uid"]] = made["metadata"]["name"]
        return made

    def change(self, path: str, body: Json) -> Json:
        """Merge ``body`` into an object."""
        return self.client.patch(path, body)

    def node(
        self,
        name: str,
        cpu: int,
        zone: str = "a",
        *,
        memory: str = "",
        pods: int = 20,
        room: Json | None = None,
        labels: Json | None = None,
        status: Json | None = None,
        **spec: Any,
    ) -> None:
        """Add a ready node; ``room`` are further resources, ``status`` further fields.

        Memory comes with the cores, so that the size of a node tells in full in its score.
        """
        body = objects.node(0, cpu=str(cpu), memory=memory or f"{2 * cpu}Gi", pods=pods)
        body["metadata"]["name"] = name
        body["metadata"]["labels"] |= {HOST: name, ZONE: zone, **(labels or {})}
        body["status"]["allocatable"] |= room or {}
        body["status"] |= status or {}
        body["spec"] |= spec
        self.add(objects.NODES, body)

    def change_node(self, name: str, body: Json, *, status: bool = False) -> None:
        """Merge ``body`` into a node or its status."""
        self.change(f"{objects.NODES}/{name}" + ("/status" if status else ""), body)

    def pod(
        self,
        name: str,
        cpu: str = "1",
        *,
        memory: str = "1Gi",
        namespace: str = "default",
        on: str | None = None,
        priority: str | None = None,
        labels: Json | None = None,
        claims: tuple[str, ...] = (),
        limits: Json | None = None,
        host_port: int | None = None,
        annotations: Json | None = None,
        **spec: Any,
    ) -> None:
        """Add a pod, already ``on`` a node if told; ``limits`` are asked for too."""
        if on:
            spec["nodeName"] = on
        if priority:
            spec["priorityClassName"] = priority
        if claims:
            spec["volumes"] = [
                {"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims
            ]
        scheduler = NOBODY if on else SCHEDULER
        options = {"cpu": cpu, "memory": memory, "labels": labels, "host_port": host_port}
        body = objects.pod(name, scheduler, namespace, spec=spec, **options)
        body["metadata"]["annotations"] = annotations or {}
        if limits:
            asked = body["spec"]["containers"][0]["resources"]
            asked["requests"] |= limits
            asked["limits"] = limits
        made = self.client.create(objects.PODS.format(namespace), body)
        self._uids[made["metadata"]["uid"]] = name
        self._pods.append(f"{namespace}/{name}")

    def claim(self, name: str, class_name: str, size: str = "1Gi", **more: Any) -> None:
        """Add a PersistentVolumeClaim of namespace default."""
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": class_name,
            **more,
        }
        self.add(CLAIMS, {"metadata": {"name": name}, "spec": spec})

    def settle(self) -> None:
        """Give the scheduler the time to see what was added so far."""
        time.sleep(SETTLE_SECONDS)

    def place(self, name: str, *arguments: Any, **options: Any) -> None:
        """Add a pod and wait until there is a decision about it."""
        self.pod(name, *arguments, **options)
        self.decided(f"{options.get('namespace', 'default')}/{name}")

    def decided(self, *names: str) -> None:
        """Wait until each pod is bound or was told why not."""
        for name in names:
            self._wait(name, "a decision", _is_decided)

    def bound(self, **where: str) -> None:
        """Wait until pods of namespace default are bound, and check to which node."""
        for name, node in where.items():
            pod = self.placed(name)
            assert assertions.node_of(pod) == node, (name, assertions.node_of(pod))

    def placed(self, name: str) -> Json:
        """Wait until a pod is bound, wherever that is; return it."""
        return self._wait(name, "a node", assertions.node_of)

    def refused(self, name: str, text: str) -> None:
        """Wait until the reason why a pod has no node contains ``text``."""

        def told(pod: Json) -> bool:
            return text in assertions.condition(pod).get("message", "")

        self._wait(name, repr(text), told)

    def leaving(self, *names: str) -> None:
        """Wait until pods are being deleted: without a kubelet they never get further."""
        for name in names:
            self._wait(name, "its end", lambda pod: "deletionTimestamp" in pod["metadata"])

    def end(self, *names: str) -> None:
        """Remove pods at once, as the kubelet does when their containers have ended."""
        for name in names:
            self.client.delete(_path(_full(name)), _NOW)

    def remains(self, name: str) -> Json:
        """Return a pod as it is, {} when it is gone."""
        try:
            return self.client.get(_path(_full(name)))
        except ApiFailure as failure:
            if failure.status == 404:
                return {}
            raise

    def note(self, title: str) -> None:
        """Remember for the story how everything is now."""
        self._notes.append((title, self._quiet()))

    def recorded_state(self) -> Json:
        """Return what became of everything, and the notes taken on the way."""
        told = [*self._notes, ("at the end", self._quiet())]
        return dict([*told, ("events", recorded_events(self.client, self._uids))])

    def clear(self) -> None:
        """Remove what was added, last things first."""
        self.client.in_parallel(lambda name: self.client.delete(_path(name), _NOW), self._pods)
        for path in reversed(self._added):
            gone = self.client.delete(path)
            if gone.get("metadata", {}).get("finalizers"):
                self.client.patch(path, _NO_FINALIZERS)
        self._added, self._pods, self._uids, self._notes = [], [], {}, []

    def _wait(self, name: str, what: str, probe: Any) -> Json:
        """Return the pod once ``probe`` is true of it."""
        last: Json = {}

        def look() -> Json:
            nonlocal last
            last = self.remains(name)
            return last if last and probe(last) else {}

        try:
            return eventually(CONNECT_TIMEOUT_SECONDS, f"{what} for {name}", look, every=0.05)
        except AssertionError as failure:
            told = assertions.condition(last) if last else "it is gone"
            raise AssertionError(f"{failure}: {told}") from None

    def _quiet(self) -> Json:
        """Return how everything is once that has stopped changing."""
        before = self._now()
        while True:
            time.sleep(QUIET_SECONDS)
            now = self._now()
            if now == before:
                return now
            before = now

    def _now(self) -> Json:
        pods = {name: _told(self.remains(name)) for name in self._pods}
        claims = {
            one["metadata"]["name"]: {
                "volume": one["spec"].get("volumeName"),
                "annotations": one["metadata"].get("annotations"),
            }
            for one in self.client.list(CLAIMS)
        }
        volumes = {
            one["metadata"]["name"]: {
                "claim": one["spec"].get("claimRef", {}).get("name"),
                "annotations": one["metadata"].get("annotations"),
            }
            for one in self.client.list(VOLUMES)
        }
        groups = {}
        if any(path.startswith(GROUPS) for path in self._added):
            groups = {one["metadata"]["name"]: _conditions(one) for one in self.client.list(GROUPS)}
        every = {"pods": pods, "claims": claims, "volumes": volumes, "groups": groups}
        now: Json = json.loads(json.dumps(every))
        return now


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Return what two stories differ in, a line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for key in sorted({*ours, *theirs})
            for line in differences(ours.get(key), theirs.get(key), f"{where} / {key}")
        ]
    return [] if ours == theirs else [f"{where.removeprefix(' / ')}: {ours!r}, not {theirs!r}"]


def _is_decided(pod: Json) -> bool:
    return bool(assertions.node_of(pod) or assertions.condition(pod).get("message"))


def _told(pod: Json) -> Json:
    if not pod:
        return {"gone": True}
    return {
        "node": assertions.node_of(pod),
        "nominated": pod["status"].get("nominatedNodeName"),
        "leaves": "deletionTimestamp" in pod["metadata"],
        "taken by devices": pod["status"].get("nodeAllocatableResourceClaimStatuses"),
        "conditions": _conditions(pod),
    }


def _conditions(obj: Json) -> Json:
    conditions = [
        {key: value for key, value in one.items() if not key.endswith("Time")}
        for one in obj.get("status", {}).get("conditions", ())
    ]
    return {one["type"]: one for one in conditions}


def _full(name: str) -> str:
    return name if "/" in name else f"default/{name}"


def _path(name: str) -> str:
    namespace, _, short = name.partition("/")
    return f"{objects.PODS.format(namespace)}/{short}"
