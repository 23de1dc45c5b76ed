"""Pods as large as an apiserver stores them, each full of one thing.

``scale`` multiplies how many of it there are; names are unlike those of the pod before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Named = Callable[[random.Random, float], Json]

HOST = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _names(rng: random.Random, scale: float, count: int) -> list[str]:
    first = rng.randrange(10**6)
    return [f"v{first + n}" for n in range(int(count * scale) + 1)]


def _with_node_terms(terms: list[Json]) -> Json:
    return {"spec": {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}}}


def terms_on_one_label(rng: random.Random, scale: float) -> Json:
    """Return a pod with a term for each of thousands of values of a label that every node has."""
    operator = rng.choice(["In", "NotIn", "Gt", "Lt"])
    values = [str(n) if operator in ("Gt", "Lt") else f"n{n}" for n in range(int(13_000 * scale))]
    return _with_node_terms(
        [
            {"matchExpressions": [{"key": HOST, "operator": operator, "values": [value]}]}
            for value in (*values, "0")
        ]
    )


def terms_on_names(rng: random.Random, scale: float) -> Json:
    """Return a pod with a term for each of thousands of node names."""
    operator = rng.choice(["In", "NotIn"])
    return _with_node_terms(
        [
            {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}
            for name in _names(rng, scale, 17_000)
        ]
    )


def pods_apart(rng: random.Random, scale: float) -> Json:
    """Return a pod with inter-pod terms that differ in what they select, or in where."""
    names = _names(rng, scale, 15_000)
    if rng.random() < 0.5:
        terms = [
            {"topologyKey": HOST, "labelSelector": {"matchLabels": {"a": name}}} for name in names
        ]
    else:
        terms = [{"topologyKey": name, "labelSelector": {}} for name in names]
    return {"spec": {"affinity": {"podAntiAffinity": {_REQUIRED: terms}}}}


def pods_apart_from_almost_all(rng: random.Random, scale: float) -> Json:
    """Return a pod with inter-pod terms that select all pods but those with a label, or few."""
    operator = rng.choice(["DoesNotExist", "Exists"])
    terms = [
        {
            "topologyKey": HOST,
            "labelSelector": {"matchExpressions": [{"key": name, "operator": operator}]},
        }
        for name in _names(rng, scale, 10_000)
    ]
    return {"spec": {"affinity": {"podAntiAffinity": {_REQUIRED: terms}}}}


def many_preferences(rng: random.Random, scale: float) -> Json:
    """Return a pod with thousands of preferences that differ, and that plain pods meet."""
    selectors = [
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["plain", name]}]}
        for name in _names(rng, scale, 8_000)
    ]
    preferences = [
        {"weight": 1, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": selector}}
        for selector in selectors
    ]
    return {"spec": {"affinity": {"podAffinity": {_PREFERRED: preferences}}}}


def terms_about_namespaces(rng: random.Random, scale: float) -> Json:
    """Return a pod with inter-pod terms that select pods of almost all, or of all namespaces."""
    selectors = [
        {} if rng.random() < 0.1 else {"matchExpressions": [{"key": "team", **which}]}
        for which in (
            {"operator": "NotIn", "values": [f"team-{name[1:]}"]}
            for name in _names(rng, scale, 6_000)
        )
    ]
    values = rng.choice([["web"], ["db"], ["web", "plain"]])
    terms = [
        {
            "topologyKey": HOST,
            "namespaceSelector": selector,
            "labelSelector": {
                "matchExpressions": [{"key": "app", "operator": "In", "values": [*values, f"x{n}"]}]
            },
        }
        for n, selector in enumerate(selectors)
    ]
    kind = rng.choice(["podAffinity", "podAntiAffinity"])
    if rng.random() < 0.5:
        return {"spec": {"affinity": {kind: {_REQUIRED: terms}}}}
    weighted = [{"weight": 1 + n % 100, "podAffinityTerm": one} for n, one in enumerate(terms)]
    return {"spec": {"affinity": {kind: {_PREFERRED: weighted}}}}


def one_large_selector(rng: random.Random, scale: float) -> Json:
    """Return a pod with one inter-pod term that has tens of thousands of requirements."""
    expressions: list[Json] = [{"key": "app", "operator": "Exists"}]
    expressions += [{"key": n, "operator": "DoesNotExist"} for n in _names(rng, scale, 27_000)]
    term = {"topologyKey": HOST, "labelSelector": {"matchExpressions": expressions}}
    return {"spec": {"affinity": {"podAntiAffinity": {_REQUIRED: [term]}}}}


def preferred_nodes(rng: random.Random, scale: float) -> Json:
    """Return a pod that prefers nodes by thousands of terms on a label that every node has."""
    operator = rng.choice(["In", "NotIn", "Gt", "Lt"])
    values = [str(n) if operator in ("Gt", "Lt") else f"n{n}" for n in range(int(13_000 * scale))]
    terms = [
        {
            "weight": 1 + n % 100,
            "preference": {
                "matchExpressions": [{"key": HOST, "operator": operator, "values": [value]}]
            },
        }
        for n, value in enumerate((*values, "0"))
    ]
    return {"spec": {"affinity": {"nodeAffinity": {_PREFERRED: terms}}}}


def pods_near_plain_ones(rng: random.Random, scale: float) -> Json:
    """Return a pod with thousands of equal preferences."""
    selector = {"matchLabels": {"app": "plain"}}
    term = {
        "weight": 1,
        "podAffinityTerm": {"topologyKey": HOST, "labelSelector": selector},
    }
    count = int(12_000 * scale) + 1
    return {"spec": {"affinity": {"podAffinity": {_PREFERRED: [term] * count}}}}


def many_values(rng: random.Random, scale: float) -> Json:
    """Return a pod with one inter-pod term for any of 150,000 values."""
    values = _names(rng, scale, 150_000)
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    term = {"topologyKey": HOST, "labelSelector": selector}
    return {"spec": {"affinity": {"podAntiAffinity": {_REQUIRED: [term]}}}}


def many_topology_keys(rng: random.Random, scale: float) -> Json:
    """Return a pod to be spread over thousands of keys that no node has."""
    action = rng.choice(["DoNotSchedule", "ScheduleAnyway"])
    return {
        "spec": {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": name,
                    "whenUnsatisfiable": action,
                    "labelSelector": {"matchLabels": {"a": name}},
                }
                for name in _names(rng, scale, 10_000)
            ]
        }
    }


def many_tolerations(rng: random.Random, scale: float) -> Json:
    """Return a pod that tolerates thousands of taints."""
    names = _names(rng, scale, 36_000)
    return {"spec": {"tolerations": [{"key": name, "operator": "Exists"} for name in names]}}


def many_labels(rng: random.Random, scale: float) -> Json:
    """Return a pod with a hundred thousand labels."""
    return {"metadata": {"labels": dict.fromkeys(_names(rng, scale, 100_000), "")}}


def many_host_ports(rng: random.Random, scale: float) -> Json:
    """Return a pod with thousands of host ports."""
    ports = [{"containerPort": 1 + n, "hostPort": 1 + n} for n in range(int(30_000 * scale) + 1)]
    return {"spec": {"containers": [{"name": "c", "ports": ports}]}}


def many_sidecars(rng: random.Random, scale: float) -> Json:
    """Return a pod with thousands of init containers, half of them sidecars, of a resource each."""
    containers = [
        {
            "name": name,
            **({"restartPolicy": "Always"} if number % 2 else {}),
            "resources": {"requests": {f"example.com/{name}": "1"}},
        }
        for number, name in enumerate(_names(rng, scale, 10_000))
    ]
    return {"spec": {"containers": [{"name": "c"}], "initContainers": containers}}


def many_resources(rng: random.Random, scale: float) -> Json:
    """Return a pod that requests tens of thousands of resources, which no node has."""
    amounts = {f"example.com/{name}": "1" for name in _names(rng, scale, 40_000)}
    where = rng.choice(["containers", "initContainers", "overhead"])
    if where == "overhead":
        return {"spec": {"containers": [{"name": "c"}], "overhead": amounts}}
    asking = [{"name": "a", "resources": {"requests": amounts}}]
    return {"spec": {"containers": [{"name": "c"}], where: asking}}


FULL_PODS: tuple[Named, ...] = (
    terms_on_one_label,
    terms_on_names,
    pods_apart,
    pods_apart_from_almost_all,
    terms_about_namespaces,
    one_large_selector,
    preferred_nodes,
    pods_near_plain_ones,
    many_preferences,
    many_values,
    many_topology_keys,
    many_tolerations,
    many_labels,
    many_host_ports,
    many_sidecars,
    many_resources,
)


def accepted(made: Json, plain: Json) -> Json:
    """Return a pod that an apiserver accepts: ``plain``, full of what ``made`` is full of."""
    spec = {**plain["spec"], **made.get("spec", {})}
    if overhead := spec.pop("overhead", None):  # needs a RuntimeClass with the same
        spec["containers"] = [{"name": "c", "resources": {"requests": overhead}}]
    for field in ("containers", "initContainers"):
        for container in spec.get(field, ()):
            container.setdefault("image", "i")
            resources = container.get("resources", {})
            resources["limits"] = dict(resources.get("requests", {}))
    of_plain = plain["metadata"]
    metadata = {**of_plain, **made.get("metadata", {}), "name": of_plain["name"]}
    return {**plain, "metadata": metadata, "spec": spec}
