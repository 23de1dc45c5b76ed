"""The cluster on which one scheduler plays a scenario: set up, recorded, and cleared afterwards.

Two clusters, each with its own scheduler, play the same scenario; any difference between their
recorded states is a difference between the schedulers. So objects have the same names in both, and
the recorded state omits only what always differs: UIDs, resourceVersions, times.
"""

from __future__ import annotations

import json
import time
from typing import Any

from envtest import assertions, objects
from envtest.kube_client import ApiFailure, KubeClient
from envtest.pod_groups import COMPOSITE_GROUPS, GROUPS
from envtest.recorded_events import recorded_events
from envtest.schedulers import SchedulerProcess
from envtest.waiting import eventually

Json = dict[str, Any]

SCHEDULER = "default-scheduler"
NOBODY = "nobody"
"""The schedulerName of pods that a scenario binds itself."""

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
NAMESPACES = "/api/v1/namespaces"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

PRIORITIES = {"low": 10, "middle": 100, "high": 1000, "top": 10000, "polite": 1000}
"""The PriorityClasses of each cluster; pods of ``polite`` never preempt."""

SETTLE_SECONDS = 0.5
"""No API shows when a scheduler has seen a PodDisruptionBudget or a namespace's labels."""

QUIET_SECONDS = 0.2
TIMEOUT_SECONDS = 20

_NO_FINALIZERS = {"metadata": {"finalizers": None}}
_NOW = {"gracePeriodSeconds": 0}


class ScenarioCluster:
    """A cluster with one scheduler. ``clear`` removes all objects that were added through it."""

    def __init__(self, client: KubeClient, scheduler: SchedulerProcess) -> None:
        self.client = client
        self.scheduler = scheduler
        self._added: list[str] = []
        self._pods: list[str] = []
        self._uids: dict[str, str] = {}
        """UID -> name of pods and their groups, since scenarios reuse names."""
        self._notes: list[tuple[str, Json]] = []

    def prepare(self) -> None:
        """Create the PriorityClasses, which all scenarios share."""
        for name, value in PRIORITIES.items():
            policy = "Never" if name == "polite" else "PreemptLowerPriority"
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            self.client.create(PRIORITY_CLASSES, body)

    def add(self, path: str, body: Json) -> Json:
        """Create an object, which ``clear`` will delete."""
        made = self.client.create(path, body)
        self._added.append(f"{path}/{made['metadata']['name']}")
        if path in (GROUPS, COMPOSITE_GROUPS):
            self._uids[made["metadata"]["uid"]] = made["metadata"]["name"]
        return made

    def change(self, path: str, body: Json) -> Json:
        """Apply a merge patch to an object."""
        return self.client.patch(path, body)

    def node(
        self,
        name: str,
        cpu: int,
        zone: str = "a",
        *,
        memory: str = "",
        pods: int = 20,
        resources: Json | None = None,
        labels: Json | None = None,
        status: Json | None = None,
        **spec: Any,
    ) -> None:
        """Add a ready node; ``resources`` are further ones, ``status`` further fields of it.

        Memory is proportional to the cores by default, so that scores by CPU and by memory agree.
        """
        body = objects.node(0, cpu=str(cpu), memory=memory or f"{2 * cpu}Gi", pods=pods)
        body["metadata"]["name"] = name
        body["metadata"]["labels"] |= {HOST: name, ZONE: zone, **(labels or {})}
        body["status"]["allocatable"] |= resources or {}
        body["status"] |= status or {}
        body["spec"] |= spec
        self.add(objects.NODES, body)

    def change_node(self, name: str, body: Json, *, status: bool = False) -> None:
        """Apply a merge patch to a node or its status."""
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
        """Add a pod; ``on``: the node that it is bound to already, ``limits``: requested too."""
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
        """Wait for the scheduler to see the objects that were added so far."""
        time.sleep(SETTLE_SECONDS)

    def place(self, name: str, *arguments: Any, **options: Any) -> None:
        """Add a pod and wait until it is bound or unschedulable."""
        self.pod(name, *arguments, **options)
        self.decided(f"{options.get('namespace', 'default')}/{name}")

    def decided(self, *names: str) -> None:
        """Wait until each pod is bound or has a message why not."""
        for name in names:
            self._wait(name, "a decision", _is_decided)

    def bound(self, **where: str) -> None:
        """Wait until pods of namespace default are bound, and assert to which node."""
        for name, node in where.items():
            pod = self.placed(name)
            assert assertions.node_of(pod) == node, (name, assertions.node_of(pod))

    def placed(self, name: str) -> Json:
        """Wait until a pod is bound to any node, and return it."""
        return self._wait(name, "a node", assertions.node_of)

    def refused(self, name: str, text: str) -> None:
        """Wait until the message of a pod's condition PodScheduled contains ``text``."""

        def has_message(pod: Json) -> bool:
            return text in assertions.condition(pod).get("message", "")

        self._wait(name, repr(text), has_message)

    def told(self, group: str, text: str) -> None:
        """Wait until the message of a condition of a PodGroup contains ``text``."""
        last: Json = {}

        def has_message() -> bool:
            nonlocal last
            last = _conditions(self.client.get(f"{GROUPS}/{group}"))
            return any(text in one["message"] for one in last.values())

        try:
            eventually(TIMEOUT_SECONDS, f"{text!r} for {group}", has_message, every=0.05)
        except AssertionError as failure:
            raise AssertionError(f"{failure}: {last}") from None

    def bind(self, name: str, node: str) -> None:
        """Bind a pod, as a scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.client.create(f"{_path(_full(name))}/binding", body)

    def leaving(self, *names: str) -> None:
        """Wait until pods are marked for deletion; without a kubelet they remain so."""
        for name in names:
            self._wait(name, "its end", lambda pod: "deletionTimestamp" in pod["metadata"])

    def end(self, *names: str) -> None:
        """Remove pods without grace period, as a kubelet does when their containers have exited."""
        for name in names:
            self.client.delete(_path(_full(name)), _NOW)

    def remains(self, name: str) -> Json:
        """Return a pod, {} if it is gone."""
        try:
            return self.client.get(_path(_full(name)))
        except ApiFailure as failure:
            if failure.status == 404:
                return {}
            raise

    def note(self, title: str) -> None:
        """Add the present state to the recorded state, under a title."""
        self._notes.append((title, self._quiet()))

    def note_pods(self, title: str) -> None:
        """Note the present state without the conditions of pod groups."""
        self._notes.append((title, self._quiet() | {"groups": {}}))

    def recorded_state(self) -> Json:
        """Return the noted states, the final state, and the Events."""
        notes = [*self._notes, ("at the end", self._quiet())]
        return dict([*notes, ("events", recorded_events(self.client, self._uids))])

    def remove(self, path: str) -> None:
        """Delete an object whatever its finalizers, as if their controllers ran."""
        gone = self.client.delete(path)
        if gone.get("metadata", {}).get("finalizers"):
            self.client.patch(path, _NO_FINALIZERS)

    def clear(self) -> None:
        """Delete the added objects, in reverse order."""
        self.client.in_parallel(lambda name: self.client.delete(_path(name), _NOW), self._pods)
        for path in reversed(self._added):
            self.remove(path)
        self._added, self._pods, self._uids, self._notes = [], [], {}, []

    def _wait(self, name: str, what: str, probe: Any) -> Json:
        """Return the pod once ``probe`` is true for it; raises ``AssertionError`` otherwise."""
        last: Json = {}

        def look() -> Json:
            nonlocal last
            last = self.remains(name)
            return last if last and probe(last) else {}

        try:
            return eventually(TIMEOUT_SECONDS, f"{what} for {name}", look, every=0.05)
        except AssertionError as failure:
            condition = assertions.condition(last) if last else "it is gone"
            raise AssertionError(f"{failure}: {condition}") from None

    def _quiet(self) -> Json:
        """Return the state of the cluster once it has stopped changing."""
        before = self._now()
        while True:
            time.sleep(QUIET_SECONDS)
            now = self._now()
            if now == before:
                return now
            before = now

    def _now(self) -> Json:
        pods = {name: _state_of(self.remains(name)) for name in self._pods}
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
        groups = {
            f"{one['metadata']['name']} of {path.rpartition('/')[2]}": _conditions(one)
            for path in (GROUPS, COMPOSITE_GROUPS)
            if any(added.startswith(path) for added in self._added)
            for one in self.client.list(path)
        }
        every = {"pods": pods, "claims": claims, "volumes": volumes, "groups": groups}
        now: Json = json.loads(json.dumps(every))
        return now


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Return the differences between two recorded states, a line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for key in sorted({*ours, *theirs})
            for line in differences(ours.get(key), theirs.get(key), f"{where} / {key}")
        ]
    return [] if ours == theirs else [f"{where.removeprefix(' / ')}: {ours!r}, not {theirs!r}"]


def _is_decided(pod: Json) -> bool:
    return bool(assertions.node_of(pod) or assertions.condition(pod).get("message"))


def _state_of(pod: Json) -> Json:
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
