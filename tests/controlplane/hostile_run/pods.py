"""Small pods that an apiserver stores, with odd values in every field that a scheduler reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hostile_run.odd_values import (
    INT32,
    INT64,
    KEYS,
    QUANTITIES,
    TEXTS,
    VALUES,
    label_selector,
    name_of,
    node_selector,
    node_term,
    quantities,
    some,
)

Json = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod(rng: random.Random, number: int) -> Json:
    """Return a pod with some of the fields; one in twenty each is bound or gated already."""
    spec: Json = {"containers": [container(rng, n) for n in range(rng.choice([1, 1, 3]))]}
    fields: dict[str, Callable[[], Any]] = {
        "nodeSelector": lambda: {rng.choice(KEYS): rng.choice(VALUES)},
        "affinity": lambda: _affinity(rng),
        "topologySpreadConstraints": lambda: _spread_constraints(rng),
        "tolerations": lambda: some(rng, lambda: _toleration(rng)),
        "volumes": lambda: _volumes(rng, number),
        "initContainers": lambda: [_init_container(rng, n) for n in range(rng.choice([1, 2, 30]))],
        "terminationGracePeriodSeconds": lambda: rng.choice([0, 1, INT64]),
        "imagePullSecrets": lambda: [{"name": f"s{n}"} for n in range(rng.choice([1, 100]))],
        "hostAliases": lambda: [{"ip": "127.0.0.1", "hostnames": ["a"] * 100}],
        "schedulingGates": lambda: [
            {"name": f"example.com/g{n}"} for n in range(rng.choice([1, 30]))
        ],
        "nodeName": lambda: rng.choice(["node-00002", "gone"]),
        "schedulerName": lambda: rng.choice(["default-scheduler", "nobody", "\U0001f600"]),
        "resourceClaims": lambda: _pod_claims(rng, number),
    }
    for name, make in fields.items():
        if rng.random() < (0.05 if name in ("schedulingGates", "nodeName") else 0.2):
            spec[name] = make()
    if "schedulingGates" in spec:
        spec.pop("nodeName", None)
    made: Json = {"spec": spec}
    if "nodeName" not in spec and rng.random() < 0.1:
        conditions = [{"type": f"T{n}", "status": "False"} for n in range(rng.choice([1, 300]))]
        nominated = rng.choice(["node-00003", "gone"])
        made["status"] = {"nominatedNodeName": nominated, "conditions": conditions}
    return made


def container(rng: random.Random, number: int) -> Json:
    """Return a container named by its number."""
    requests = quantities(rng, "cpu", "memory", "ephemeral-storage")
    limits: Json = {}
    if rng.random() < 0.2:
        extended = {f"example.com/r{n}": str(rng.choice([0, 1, INT64])) for n in range(9)}
        requests |= extended
        limits |= extended
    ports: list[Json] = []
    if rng.random() < 0.2:
        first = rng.randrange(1, 60_000)
        protocol = rng.choice(["TCP", "UDP", "SCTP"])
        ports = [
            {"containerPort": port, "hostPort": port, "protocol": protocol, "hostIP": ip}
            for port, ip in zip(range(first, first + 9), ["", "0.0.0.0", "::"] * 3, strict=True)
        ]
    return {
        "name": f"c{number}",
        "image": rng.choice(["i", "\U0001f600", "r/" + "n" * 5_000, "a@sha256:b"]),
        "env": [{"name": f"E{n}", "value": rng.choice(TEXTS)} for n in range(rng.randrange(5))],
        "resources": {"requests": requests, "limits": limits},
        "ports": ports,
    }


def _init_container(rng: random.Random, number: int) -> Json:
    made = container(rng, number) | {"name": f"init{number}", "ports": []}
    return made | ({"restartPolicy": "Always"} if rng.random() < 0.5 else {})


def _affinity(rng: random.Random) -> Json:
    def weighted(field: str, make: Callable[[random.Random], Json]) -> Json:
        return {"weight": rng.choice([1, 50, 100]), field: make(rng)}

    node = {
        _REQUIRED: node_selector(rng),
        _PREFERRED: some(rng, lambda: weighted("preference", node_term)),
    }
    made: Json = {}
    if rng.random() < 0.6:
        made["nodeAffinity"] = {name: node[name] for name in node if rng.random() < 0.6}
    for name in ("podAffinity", "podAntiAffinity"):
        if rng.random() < 0.4:
            made[name] = {
                _REQUIRED: some(rng, lambda: _pod_affinity_term(rng), 2),
                _PREFERRED: some(rng, lambda: weighted("podAffinityTerm", _pod_affinity_term)),
            }
    return made


def _pod_affinity_term(rng: random.Random) -> Json:
    term: Json = {"topologyKey": rng.choice(KEYS), "labelSelector": label_selector(rng)}
    if rng.random() < 0.3:
        term["namespaceSelector"] = rng.choice([{}, label_selector(rng)])
    if rng.random() < 0.3:
        term["namespaces"] = ["default", "gone", *(f"ns-{n}" for n in range(rng.randrange(100)))]
    return term


def _spread_constraints(rng: random.Random) -> list[Json]:
    # unique by topology key and action
    return [
        {
            "maxSkew": rng.choice([1, INT32]),
            "topologyKey": key,
            "whenUnsatisfiable": rng.choice(["DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": rng.choice([None, {}, label_selector(rng)]),
            "nodeAffinityPolicy": rng.choice(["Honor", "Ignore"]),
            "nodeTaintsPolicy": rng.choice(["Honor", "Ignore"]),
        }
        for key in rng.sample(KEYS, rng.randrange(1, 4))
    ]


def _toleration(rng: random.Random) -> Json:
    if rng.random() < 0.3:
        return {"operator": "Exists"}
    return {
        "key": rng.choice(KEYS),
        "value": rng.choice(VALUES),
        "effect": "NoExecute",
        "tolerationSeconds": rng.choice([0, -1, INT64, -(2**63)]),
    }


def _volumes(rng: random.Random, number: int) -> list[Json]:
    claim = {"claimName": rng.choice([name_of("PersistentVolumeClaim", number), "gone"])}
    request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    kinds: list[Json] = [
        {"persistentVolumeClaim": claim},
        {"ephemeral": {"volumeClaimTemplate": {"spec": request}}},
        {"csi": {"driver": name_of("CSIDriver", number), "volumeAttributes": {"a": "\u0000"}}},
        {"emptyDir": {"sizeLimit": rng.choice(QUANTITIES)}},
        {"nfs": {"server": "\u202e", "path": "/"}},
        {"iscsi": {"targetPortal": "p", "iqn": "iqn.2026-01.com.example:a", "lun": 0}},
        {"rbd": {"monitors": ["m"], "image": "i"}},
        {"gcePersistentDisk": {"pdName": "d"}},
        {"awsElasticBlockStore": {"volumeID": "v"}},
    ]
    chosen = rng.sample(kinds, rng.randrange(1, 5))
    return [{"name": f"v{n}", **volume} for n, volume in enumerate(chosen)]


def _pod_claims(rng: random.Random, number: int) -> list[Json]:
    """Return references to the claim of that number, to one that does not exist, or a template."""
    return [
        rng.choice(
            [
                {"name": f"c{n}", "resourceClaimName": name_of("ResourceClaim", number)},
                {"name": f"c{n}", "resourceClaimName": "gone"},
                {"name": f"c{n}", "resourceClaimTemplateName": "gone"},
            ]
        )
        for n in range(rng.choice([1, 1, 30]))
    ]


def pod_template(rng: random.Random) -> Json:
    """Return the template of a workload."""
    labels = {"app": "template"}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container(rng, 0)]}}
