"""Pods and nodes of files, as an apiserver would store them, any number of each.

Admission is the sandbox's: defaults, priorities of PriorityClasses, merged label keys, and its
errors. Workloads become the pods that their controllers would create.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from proreus.base.compressed_files import MAX_BYTES
from proreus.base.errors import ConfigError
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.object_files import (
    JsonObject,
    decode_checked,
    read_documents,
    resource_of,
)
from proreus.objects.codec import to_plain
from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import Resource
from proreus.objects.node import LABEL_HOSTNAME, Node
from proreus.objects.pod import Pod
from proreus.objects.priority_class import PRIORITY_CLASSES
from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.store import Store
from proreus.workbench.sandbox.strategies import STRATEGIES

_REPLICAS_FIELD = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""Kinds of workloads, and the field of their spec that says how many pods they have."""

MAX_COPIES = 500_000
"""The most pods or nodes of one template; a cluster has 150,000 pods at most."""

_SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")


class Admission:
    """Stores pods as an apiserver of this cluster would."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._store = Store(STRATEGIES)
        classes = {
            name: {"value": found.value, "globalDefault": found.global_default}
            | ({"preemptionPolicy": found.preemption_policy} if found.preemption_policy else {})
            for name, found in objects.of(PRIORITY_CLASSES).items()
        }
        # Without the right to list PriorityClasses, most of them are found in pods.
        for pod in objects.of(PODS).values():
            if pod.spec.priority_class_name and pod.spec.priority is not None:
                classes.setdefault(pod.spec.priority_class_name, {"value": pod.spec.priority})
        for name in sorted(classes):
            self._add_class(name, classes[name])
        self.pods_by_name = objects.of(PODS)

    def _add_class(self, name: str, priority_class: JsonObject) -> None:
        if name not in _SYSTEM_CLASSES:
            obj = {"metadata": {"name": name}, **priority_class}
            try:
                self._store.create("priorityclasses.scheduling.k8s.io", obj)
            except StatusError as error:
                raise ConfigError(f"PriorityClass {name}: {error}") from None

    def add_class(self, place: str, obj: JsonObject) -> None:
        """Add the PriorityClass of a file; it replaces none."""
        name = decode_checked(PRIORITY_CLASSES, obj, place).metadata.name
        classes = self._store.collection("priorityclasses.scheduling.k8s.io")
        if classes.get(name) is None:
            self._add_class(name, {k: v for k, v in obj.items() if k != "metadata"})

    def admit(self, place: str, pod: JsonObject) -> Pod:
        """Return a pending pod as the apiserver would store it; raises ``ConfigError``."""
        typed: Pod = decode_checked(PODS, pod, place)  # errors of fields first
        key = f"{typed.metadata.namespace}/{typed.metadata.name}"
        if key in self.pods_by_name:
            raise ConfigError(f"{place}: metadata.name: there is a pod {key} already")
        spec = {field: value for field, value in pod["spec"].items() if field != "nodeName"}
        obj = {**pod, "spec": spec, "status": {}}
        try:
            self._ensure_namespace(typed.metadata.namespace)
            stored = self._store.create("pods", obj, typed.metadata.namespace).object()
        except StatusError as error:
            raise ConfigError(f"{place} (Pod {key}): {error}") from None
        stored["metadata"]["uid"] = f"simulated/{key}"
        made: Pod = decode_checked(PODS, stored, place)
        return made

    def _ensure_namespace(self, name: str) -> None:
        if self._store.collection("namespaces").get(name) is None:
            self._store.create("namespaces", {"metadata": {"name": name}})


class PodTemplate:
    """A pod of a file, to be created any number of times."""

    def __init__(
        self,
        place: str,
        pod: JsonObject,
        replicas: int,
        owner: JsonObject | None,
        claims: tuple[JsonObject, ...] = (),
    ) -> None:
        """``claims``: templates of the claims that each pod gets (StatefulSet)."""
        self.place = place
        self._claims = claims
        self.replicas = replicas
        self._pod = pod
        self._owner = owner
        meta = pod.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        self.name = str(meta.get("name") or str(meta.get("generateName") or "").rstrip("-"))
        self.namespace = str(meta.get("namespace") or "default")
        if not isinstance(pod.get("spec"), dict):
            raise ConfigError(f"{place}: spec: the spec of a pod is required")
        _check(place, "spec.volumes", pod["spec"].get("volumes", []), list)
        if not self.name:
            raise ConfigError(f"{place}: metadata.name: a name is required")

    def pods(self, replicas: int | None = None) -> Iterator[JsonObject]:
        """Yield pods with distinct names: that of the template, if there is one pod only.

        Raises ``ConfigError`` for too many.
        """
        count = self.replicas if replicas is None else replicas
        check_copies(f"{self.place}: {count:,} pods", count, self._pod)
        for number in range(count):
            yield self.pod(self.name if count == 1 and not self._owner else None, number)

    def pod(self, name: str | None, number: int) -> JsonObject:
        """Return a pod with a name; None: that of the template and a number."""
        meta = dict(self._pod.get("metadata") or {})
        meta.pop("generateName", None)
        meta |= {"name": name or f"{self.name}-{number}", "namespace": self.namespace}
        if self._owner:
            meta["ownerReferences"] = [self._owner]
        if not self._claims:
            return {**self._pod, "metadata": meta}
        spec = self._pod["spec"]
        volumes = [
            {
                "name": claim["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": self._claim_name(claim, meta["name"])},
            }
            for claim in self._claims
        ]
        spec = {**spec, "volumes": [*(spec.get("volumes") or ()), *volumes]}
        return {**self._pod, "metadata": meta, "spec": spec}

    def claims_of(self, pod_name: str) -> Iterator[JsonObject]:
        """Yield the claims that a pod of this name gets."""
        for claim in self._claims:
            name = self._claim_name(claim, pod_name)
            meta = {"name": name, "namespace": self.namespace, "uid": f"simulated/{name}"}
            kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
            yield {**claim, **kind, "metadata": meta, "status": {"phase": "Pending"}}

    def _claim_name(self, claim: JsonObject, pod_name: str) -> str:
        return f"{claim['metadata']['name']}-{pod_name}"


def read_templates(path: Path) -> tuple[list[PodTemplate], list[tuple[str, JsonObject]]]:
    """Return the pods and workloads of a file, and its other objects with their places."""
    templates, others = [], []
    for place, obj in read_documents(path):
        if obj["kind"] == "Pod":
            templates.append(PodTemplate(place, obj, 1, None))
        elif obj["kind"] in _REPLICAS_FIELD:
            templates.append(_of_workload(place, obj))
        else:
            others.append((place, obj))
    return templates, others


def template_of_pod(pod: Pod) -> PodTemplate:
    """Return a template of which all pods are like an existing one, without its node."""
    plain = to_plain(pod)
    meta: JsonObject = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
    if pod.metadata.labels:
        meta["labels"] = pod.metadata.labels
    owners = plain["metadata"].get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    key = f"{pod.metadata.namespace}/{pod.metadata.name}"
    # Plain data lacks fields with their default, but the scheduler of this pod is known.
    spec = {**plain["spec"], "schedulerName": pod.spec.scheduler_name}
    return PodTemplate(f"pod/{key}", {"metadata": meta, "spec": spec}, 1, owner)


def _of_workload(place: str, obj: JsonObject) -> PodTemplate:
    kind, spec, meta = obj["kind"], obj.get("spec"), obj.get("metadata")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict):
        raise ConfigError(f"{place}: spec.template: the template of a {kind}'s pods is required")
    if not isinstance(meta, dict) or not meta.get("name"):
        raise ConfigError(f"{place}: metadata.name: a name is required")
    assert isinstance(spec, dict)
    _check(place, "spec.template.metadata", template.get("metadata", {}), dict)
    field = _REPLICAS_FIELD[kind]
    replicas = spec.get(field, 1)
    if not isinstance(replicas, int) or replicas < 0:
        raise ConfigError(f"{place}: spec.{field}: {replicas!r} is not a number of pods")
    name, namespace = str(meta["name"]), str(meta.get("namespace") or "default")
    inner = {**(template.get("metadata") or {}), "name": name, "namespace": namespace}
    # A name that no ReplicaSet of the cluster has: the pods are a workload of their own.
    owner = {
        "apiVersion": str(obj.get("apiVersion", "")),
        "kind": kind,
        "name": name,
        "uid": f"simulated/{kind}/{namespace}/{name}",
        "controller": True,
    }
    claims = spec.get("volumeClaimTemplates", [])
    _check(place, "spec.volumeClaimTemplates", claims, list)
    for number, claim in enumerate(claims):
        field = f"spec.volumeClaimTemplates[{number}]"
        _check(place, field, claim, dict)
        _check(place, f"{field}.metadata", claim.get("metadata", {}), dict)
        if not claim.get("metadata", {}).get("name"):
            raise ConfigError(f"{place}: {field}.metadata.name: a name is required")
    pod = {**template, "metadata": inner}
    return PodTemplate(place, pod, replicas, owner, tuple(claims))


def _check(place: str, field: str, value: object, type_: type) -> None:
    """Raise ``ConfigError`` for a value that is no object, or no list."""
    if not isinstance(value, type_):
        what = "a list" if type_ is list else "an object"
        raise ConfigError(f"{place}: {field}: {what} is required, not {value!r:.40}")


def check_copies(what: str, count: int, obj: JsonObject | Node) -> None:
    """Raise ``ConfigError`` if so many objects like one are more than a simulation can hold."""
    size = count * len(msgspec.json.encode(obj))
    if count > MAX_COPIES:
        raise ConfigError(f"{what} are more than {MAX_COPIES:,}")
    if size > MAX_BYTES:
        raise ConfigError(f"{what} have {size:,} bytes, more than {MAX_BYTES:,}")


# ---- nodes -------------------------------------------------------------------------------------


def read_node(path: Path) -> Node:
    """Return the one node of a file; raises ``ConfigError``."""
    documents = [(place, obj) for place, obj in read_documents(path) if resource_of(obj) is NODES]
    if len(documents) != 1:
        raise ConfigError(f"{path}: exactly one Node is needed, not {len(documents)}")
    (place, obj) = documents[0]
    status = obj.get("status")
    if isinstance(status, dict) and "allocatable" not in status:
        obj = {**obj, "status": {**status, "allocatable": status.get("capacity", {})}}
    node: Node = decode_checked(NODES, obj, place)
    if not node.status.allocatable:
        raise ConfigError(f"{place} (Node {node.metadata.name}): status.allocatable: is required")
    return node


def copies_of_node(node: Node, count: int, taken: Iterable[str]) -> Iterator[Node]:
    """Yield nodes like one, with names of their own; ``taken``: names that exist already.

    Raises ``ConfigError`` for too many.
    """
    check_copies(f"Node {node.metadata.name}: {count:,} nodes", count, node)
    used = set(taken)
    number = 0
    for _ in range(count):
        name = node.metadata.name
        while name in used:
            number += 1
            name = f"{node.metadata.name}-{number}"
        used.add(name)
        labels = node.metadata.labels
        if LABEL_HOSTNAME in labels:
            labels = {**labels, LABEL_HOSTNAME: name}
        meta = msgspec.structs.replace(
            node.metadata, name=name, uid=f"simulated/{name}", labels=labels
        )
        yield msgspec.structs.replace(node, metadata=meta)


def other_object(place: str, obj: JsonObject) -> tuple[Resource[Any], Any] | None:
    """Return a typed object of a file; None for a kind that no scheduler reads."""
    resource = resource_of(obj)
    return None if resource is None else (resource, decode_checked(resource, obj, place))
