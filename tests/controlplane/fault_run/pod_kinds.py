"""The kinds of pods of a fault run: what they ask for, and what they need as well."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from envtest import fake_extender, fake_storage, objects, pod_groups

from fault_run.judge import APART, VICTIM

Json = dict[str, Any]

SCHEDULER, ASKING_A_PLUGIN = "fault-run", "fault-run-with-plugin"
KIND = "fault-run/kind"
POOL = "fault-run/pool"

HOST = "kubernetes.io/hostname"
DEVICE_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = objects.PODS.format("default")

GANG_SIZE = 4
PORTS = range(8000, 8006)
LOCAL, PROVISIONED = "local", "provisioned"
"""Storage classes: volumes that are there, and volumes that are made for a claim."""
PRIORITY_LOW, PRIORITY_HIGH = "low", "high"


@dataclass
class Bundle:
    """Pods that are created together, after ``before``: (path of a collection, object)."""

    pods: list[Json]
    before: list[tuple[str, Json]] = field(default_factory=list)


@dataclass(frozen=True)
class PodKind:
    """A kind of pod: its weight among all, how many may live at a time, and how one is made."""

    weight: int
    at_most: int
    make: Callable[[str, random.Random], Bundle]


def _pod(name: str, kind: str, scheduler: str = SCHEDULER, **options: Any) -> Json:
    labels = {KIND: kind} | options.pop("labels", {})
    return objects.pod(name, scheduler, labels=labels, **options)


def _plain(name: str, rng: random.Random) -> Bundle:
    cpu = rng.choice(("100m", "250m", "500m", "1", "2", "4"))
    return Bundle([_pod(name, "plain", cpu=cpu)])


def _spread(name: str, rng: random.Random) -> Bundle:
    labels = {"spread": str(rng.randrange(5))}
    constraint = {
        "maxSkew": rng.choice((1, 2)),
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": rng.choice(("DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": {"matchLabels": labels},
    }
    spec = {"topologySpreadConstraints": [constraint]}
    return Bundle([_pod(name, "spread", labels=labels, spec=spec)])


def _apart(name: str, rng: random.Random) -> Bundle:
    labels = {APART: f"group-{rng.randrange(8)}"}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": HOST}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    spec = {"affinity": {"podAntiAffinity": required}}
    return Bundle([_pod(name, "apart", labels=labels, spec=spec)])


def _port(name: str, rng: random.Random) -> Bundle:
    return Bundle([_pod(name, "port", cpu="100m", host_port=rng.choice(PORTS))])


def _with_claim(name: str, kind: str, class_name: str) -> Bundle:
    claim = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": class_name,
        },
    }
    spec = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}
    return Bundle([_pod(name, kind, spec=spec)], [(fake_storage.CLAIMS, claim)])


def _volume(name: str, rng: random.Random) -> Bundle:
    return _with_claim(name, "volume", LOCAL)


def _provisioned(name: str, rng: random.Random) -> Bundle:
    return _with_claim(name, "provisioned", PROVISIONED)


def _device(name: str, rng: random.Random) -> Bundle:
    asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": rng.choice((1, 2))}
    spec = {"devices": {"requests": [{"name": "r", "exactly": asked}]}}
    claim = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    uses = {"resourceClaims": [{"name": "d", "resourceClaimName": name}]}
    return Bundle([_pod(name, "device", spec=uses)], [(DEVICE_CLAIMS, claim)])


def _gang(name: str, rng: random.Random) -> Bundle:
    policy = {"gang": {"minCount": GANG_SIZE}}
    group = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}
    spec = {"schedulingGroup": {"podGroupName": name}}
    pods = [_pod(f"{name}-{n}", "gang", cpu="250m", spec=spec) for n in range(GANG_SIZE)]
    return Bundle(pods, [(pod_groups.GROUPS, group)])


def _extender(name: str, rng: random.Random) -> Bundle:
    pod = _pod(name, "extender")
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"][fake_extender.RESOURCE] = "1"
    resources["limits"] = {fake_extender.RESOURCE: "1"}
    return Bundle([pod])


def _plugin(name: str, rng: random.Random) -> Bundle:
    return Bundle([_pod(name, "plugin", ASKING_A_PLUGIN)])


CONTENDED = {"key": "fault-run/contended", "effect": "NoSchedule"}


def _on_contended_nodes(priority: str) -> Json:
    return {
        "nodeSelector": {POOL: "contended"},
        "tolerations": [CONTENDED | {"operator": "Exists"}],
        "priorityClassName": priority,
    }


def _filler(name: str, rng: random.Random) -> Bundle:
    labels = {VICTIM: "yes", "budget": str(rng.randrange(2))}
    spec = _on_contended_nodes(PRIORITY_LOW)
    return Bundle([_pod(name, "filler", cpu="8", labels=labels, spec=spec)])


def _preemptor(name: str, rng: random.Random) -> Bundle:
    spec = _on_contended_nodes(PRIORITY_HIGH)
    return Bundle([_pod(name, "preemptor", cpu="8", spec=spec)])


CONTENDED_NODES = 8
FILLERS = CONTENDED_NODES * 4

POD_KINDS: dict[str, PodKind] = {
    "plain": PodKind(44, 500, _plain),
    "spread": PodKind(10, 100, _spread),
    "apart": PodKind(8, 80, _apart),
    "port": PodKind(8, 60, _port),
    "volume": PodKind(7, 30, _volume),
    "provisioned": PodKind(4, 30, _provisioned),
    "device": PodKind(7, 30, _device),
    "gang": PodKind(2, 20 * GANG_SIZE, _gang),
    "extender": PodKind(5, 40, _extender),
    "plugin": PodKind(5, 60, _plugin),
    "filler": PodKind(8, FILLERS, _filler),
    "preemptor": PodKind(4, FILLERS // 3, _preemptor),
}
