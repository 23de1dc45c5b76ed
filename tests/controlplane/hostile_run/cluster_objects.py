"""Small nodes, policies, groups and workloads that an apiserver stores, with odd values."""

from __future__ import annotations

import random
from typing import Any

from hostile_run.odd_values import (
    INT32,
    INT64,
    KEYS,
    TEXTS,
    VALUES,
    label_selector,
    labels,
    quantities,
)
from hostile_run.pods import pod_template

Json = dict[str, Any]


def node(rng: random.Random, _number: int) -> Json:
    """Return a node."""
    amounts = quantities(rng, "cpu", "memory", "ephemeral-storage", "hugepages-2Mi")
    amounts |= {"pods": rng.choice(["0", "110", str(INT64)])}
    amounts |= {
        f"example.com/r{n}": rng.choice(["0", str(INT64)]) for n in range(rng.choice([0, 90]))
    }
    taints = [
        {
            "key": f"t{n}",
            "value": rng.choice(VALUES),
            "effect": rng.choice(["NoSchedule", "NoExecute"]),
        }
        for n in range(rng.choice([0, 1, 300]))
    ]
    images = [
        {
            "names": [rng.choice(["i", "\U0001f600", "n" * 500])],
            "sizeBytes": rng.choice([0, INT64]),
        }
        for _ in range(rng.choice([0, 1, 200]))
    ]
    conditions = [{"type": rng.choice(["Ready", "Odd", "\u0000"]), "status": "Unknown"}]
    return {
        "spec": {"taints": taints, "unschedulable": rng.random() < 0.3},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "images": images,
            "conditions": conditions,
            "volumesInUse": [rng.choice(TEXTS) for _ in range(rng.randrange(5))],
        },
    }


def namespace(_rng: random.Random, _number: int) -> Json:
    """Return a namespace."""
    return {}


def pod_disruption_budget(rng: random.Random, _number: int) -> Json:
    """Return a budget, with a status."""
    field = rng.choice(["minAvailable", "maxUnavailable"])
    spec = {field: rng.choice([0, INT32, "0%", "100%"])}
    if rng.random() < 0.9:
        spec["selector"] = rng.choice([{}, label_selector(rng)])
    numbers = {
        name: rng.choice([0, 1, INT32])
        for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    }
    disrupted = {f"p{n}": "2026-01-01T00:00:00Z" for n in range(rng.choice([0, 200]))}
    return {"spec": spec, "status": {**numbers, "disruptedPods": disrupted}}


def priority_class(rng: random.Random, _number: int) -> Json:
    """Return a priority class."""
    return {
        "value": rng.choice([0, 10**9, -(2**31)]),
        "description": rng.choice(TEXTS),
        "preemptionPolicy": rng.choice(["Never", "PreemptLowerPriority"]),
    }


def _scheduling_policy(rng: random.Random, field: str) -> Json:
    return rng.choice([{"basic": {}}, {"gang": {field: rng.choice([1, 3, INT32])}}])


def pod_group(rng: random.Random, _number: int) -> Json:
    """Return a pod group."""
    spec: Json = {"schedulingPolicy": _scheduling_policy(rng, "minCount")}
    if rng.random() < 0.3:
        spec["schedulingConstraints"] = {"topology": [{"key": rng.choice(KEYS)}]}
    return {"spec": spec}


def composite_pod_group(rng: random.Random, _number: int) -> Json:
    """Return a group of groups."""
    template = {"workloadName": "gone", "templateName": "t"}
    policy = _scheduling_policy(rng, "minGroupCount")
    return {"spec": {"workloadRef": template, "schedulingPolicy": policy}}


def service(rng: random.Random, _number: int) -> Json:
    """Return a service."""
    # without an address: there are 254 of them
    ports = [{"name": f"p{n}", "port": 1 + n} for n in range(rng.choice([1, 100]))]
    return {"spec": {"clusterIP": "None", "selector": labels(rng), "ports": ports}}


def replication_controller(rng: random.Random, _number: int) -> Json:
    """Return a replication controller."""
    template = pod_template(rng)
    return {
        "spec": {
            "replicas": rng.choice([0, INT32]),
            "selector": {"app": "template"},
            "template": template,
        }
    }


def _with_selector(rng: random.Random) -> Json:
    selector: Json = {"matchLabels": {"app": "template"}}
    if rng.random() < 0.5:
        selector["matchExpressions"] = [{"key": "app", "operator": "NotIn", "values": ["x", "0"]}]
    spec = {"selector": selector, "template": pod_template(rng)}
    return {"spec": {**spec, "replicas": rng.choice([0, 1, INT32])}}


def replica_set(rng: random.Random, _number: int) -> Json:
    """Return a replica set."""
    return _with_selector(rng)


def stateful_set(rng: random.Random, _number: int) -> Json:
    """Return a stateful set."""
    made = _with_selector(rng)
    made["spec"]["serviceName"] = rng.choice(["", "s"])
    return made
