"""Checks of the schedulers' work, by what the apiserver lists.

Each check uses only the apiserver's objects, and raises AssertionError with the first few
violations. Whether a pod fits is computed here independently and pod by pod: a check that used
proreus's columns would share their mistakes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from envtest.kube_client import KubeClient
from envtest.waiting import eventually

Json = dict[str, Any]

ALL_PODS = "/api/v1/pods"
EVENTS = "/apis/events.k8s.io/v1/events"

_SUFFIXES = {
    "m": 1,
    "": 1000,
    "k": 10**6,
    "M": 10**9,
    "G": 10**12,
    "Ki": 1000 * 2**10,
    "Mi": 1000 * 2**20,
    "Gi": 1000 * 2**30,
    "Ti": 1000 * 2**40,
}


def thousandths(quantity: str) -> int:
    """Return a quantity in thousandths, as an integer (the tests use no smaller units)."""
    digits = quantity.rstrip("kKMGTim")
    return int(digits) * _SUFFIXES[quantity[len(digits) :]]


def key(pod: Json) -> str:
    """Return namespace/name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def wait_until_bound(
    client: KubeClient, count: int, seconds: float, *, path: str = ALL_PODS, selector: str = ""
) -> None:
    """Wait until ``count`` pods have a node."""
    query = {"labelSelector": selector} if selector else {}
    every = 0.25 if count < 500 else 0.5

    def enough() -> bool:
        waiting = client.count(path, fieldSelector="spec.nodeName=", **query)
        return client.count(path, **query) - waiting >= count

    eventually(seconds, f"{count} pods bound", enough, every)


def terminal(pod: Json) -> bool:
    """Return whether a pod has ended, and so occupies no resources."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def node_of(pod: Json) -> str | None:
    """Return the node that a pod is bound to, or None."""
    name: str | None = pod["spec"].get("nodeName")
    return name


def check_no_node_over_committed(nodes: Iterable[Json], pods: Iterable[Json]) -> None:
    """Check that the requests of the pods on each node do not exceed its allocatable resources."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        where = node_of(pod)
        if where is None or terminal(pod):
            continue
        used[where]["pods"] += 1000
        for container in pod["spec"]["containers"]:
            for resource, amount in container["resources"].get("requests", {}).items():
                used[where][resource] += thousandths(amount)
    over = [
        f"{name}: {resource} {amount / 1000} of {node['status']['allocatable'].get(resource)}"
        for node in nodes
        for name in [node["metadata"]["name"]]
        for resource, amount in used[name].items()
        if amount > thousandths(node["status"]["allocatable"].get(resource, "0"))
    ]
    assert not over, f"{len(over)} over-committed: {over[:5]}"


def check_all_fit(nodes: Iterable[Json], pods: Iterable[Json]) -> None:
    """Check that each bound pod fits its node by everything but resources."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    ports: Counter[tuple[str, int]] = Counter()
    wrong = []
    for pod in pods:
        where = node_of(pod)
        if where is None:
            continue
        node = by_name.get(where)
        if node is None:
            wrong.append(f"{key(pod)} is on {where}, which does not exist")
            continue
        wrong += [f"{key(pod)} on {where}: {why}" for why in _misfits(pod, node)]
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", ()):
                if number := port.get("hostPort"):
                    ports[where, number] += 1
    wrong += [
        f"{where}: port {number} taken {n} times" for (where, number), n in ports.items() if n > 1
    ]
    assert not wrong, f"{len(wrong)} misplaced: {wrong[:5]}"


def _misfits(pod: Json, node: Json) -> Iterable[str]:
    labels = node["metadata"]["labels"]
    for label, value in pod["spec"].get("nodeSelector", {}).items():
        if labels.get(label) != value:
            yield f"{label} is {labels.get(label)}, not {value}"
    if node["spec"].get("unschedulable"):
        yield "the node is cordoned"
    tolerations = pod["spec"].get("tolerations", ())
    for taint in node["spec"].get("taints", ()):
        if taint["effect"] != "PreferNoSchedule" and not any(
            _tolerates(toleration, taint) for toleration in tolerations
        ):
            yield f"taint {taint['key']} is not tolerated"
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required and not any(
        all(
            labels.get(expression["key"]) in expression["values"]
            for expression in term["matchExpressions"]
        )
        for term in required["nodeSelectorTerms"]
    ):
        yield "no node affinity term holds"


def _tolerates(toleration: Json, taint: Json) -> bool:
    return (
        toleration.get("effect") in (None, taint["effect"])
        and toleration.get("key") in (None, taint["key"])
        and (
            toleration.get("operator") == "Exists"
            or toleration.get("value", "") == taint.get("value", "")
        )
    )


def condition(pod: Json, kind: str = "PodScheduled") -> Json:
    """Return one of a pod's conditions, or {}."""
    for each in pod["status"].get("conditions", ()):
        if each["type"] == kind:
            return dict(each)
    return {}


def check_scheduled_conditions(pods: Iterable[Json]) -> None:
    """Check that the condition PodScheduled is true for bound pods, and false for others."""
    wrong = [
        f"{key(pod)}: {condition(pod)}"
        for pod in pods
        if condition(pod).get("status") != ("True" if node_of(pod) else "False")
    ]
    assert not wrong, f"{len(wrong)} conditions wrong: {wrong[:5]}"


def scheduled_events(client: KubeClient) -> dict[str, list[Json]]:
    """Return the Scheduled events of each pod: namespace/name -> events."""
    found: dict[str, list[Json]] = defaultdict(list)
    for event in client.list(EVENTS, fieldSelector="reason=Scheduled"):
        regarding = event["regarding"]
        found[f"{regarding['namespace']}/{regarding['name']}"].append(event)
    return found


def check_each_scheduler_bound_its_own_pods(
    events: dict[str, list[Json]], pods: Iterable[Json]
) -> Counter[str]:
    """Check that each pod was scheduled by its own scheduler; return the number for each."""
    done: Counter[str] = Counter()
    wrong = []
    for pod in pods:
        for event in events.get(key(pod), ()):
            done[event["reportingController"]] += 1
            if event["reportingController"] != pod["spec"]["schedulerName"]:
                wrong.append(f"{key(pod)} by {event['reportingController']}")
            expected = f"Successfully assigned {key(pod)} to {node_of(pod)}"
            if event["note"] != expected:
                wrong.append(f"{event['note']!r} instead of {expected!r}")
    assert not wrong, f"{len(wrong)} wrong: {wrong[:5]}"
    return done


def check_every_pod_has_one_scheduled_event(
    events: dict[str, list[Json]], pods: Iterable[Json]
) -> None:
    """Check that each pod has exactly one Scheduled event."""
    wrong = [
        f"{key(pod)}: {len(events.get(key(pod), ()))}"
        for pod in pods
        if node_of(pod) and len(events.get(key(pod), ())) != 1
    ]
    assert not wrong, f"{len(wrong)} pods without exactly one Scheduled event: {wrong[:5]}"
