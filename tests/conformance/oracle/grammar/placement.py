"""What decides between nodes: affinity, spreading, tolerations, ports, images."""

from __future__ import annotations

from conformance.oracle.grammar import objects
from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import thing

_IMAGES = ("nginx:1.25", "redis", "docker.io/library/redis:latest", "quay.io/x/y:1", "m:v3")
_LABELS = {"app": objects.APPS, "tier": ("front", "back")}


def placement(draw: Draw) -> JsonObject:
    """Return a case whose pods say in every way where they want to be."""
    names = [f"n{i}" for i in range(draw.randint(2, 9))]
    cluster = [with_images(draw, objects.node(draw, name)) for name in names]
    everything = [*objects.namespaces(draw), *cluster, *workloads(draw)]
    for n in range(draw.randint(0, 25)):
        one = objects.running(draw, f"e{n}", draw.choice(names), **objects.containers(draw))
        wish(draw, one, 0.25)
        if draw.chance(0.15):
            one["status"] |= objects.container_statuses(draw, one["spec"])
        everything.append(one)
    for n in range(draw.choice((0, 0, 0, 1, 2))):
        one = objects.pod(draw, f"nominated{n}", priority=100, **objects.containers(draw))
        wish(draw, one, 0.3)
        one["status"]["nominatedNodeName"] = draw.choice(names)
        everything.append(one)
    pod = objects.pending(draw, **objects.containers(draw))
    wish(draw, pod, 0.45)
    if draw.chance(0.1):
        pod["status"] |= objects.container_statuses(draw, pod["spec"])
    if draw.chance(0.4):
        own(pod)
    return {"config": None, "objects": everything, "pod": pod}


def own(pod: JsonObject) -> None:
    """Let a pod be one of the ReplicaSet that ``workloads`` may have."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs0", "controller": True}
    pod["metadata"]["ownerReferences"] = [{**owner, "uid": "rs0"}]


def with_images(draw: Draw, node: JsonObject) -> JsonObject:
    """Return the node with some images on it."""
    node["status"]["images"] = [
        {
            "names": draw.some((image, f"{image}@sha256:ab"), least=1),
            "sizeBytes": draw.choice((5242880, 31457280, 734003200, 2147483648)),
        }
        for image in draw.some(_IMAGES)
    ]
    return node


def workloads(draw: Draw) -> list[JsonObject]:
    """Return what default constraints of spreading are made of."""
    found = []
    for n in range(draw.choice((0, 1, 2))):
        selector = draw.fields(0.8, app=draw.choice(objects.APPS))
        found.append(
            thing("Service", f"s{n}", namespace="default", spec=draw.fields(0.9, selector=selector))
        )
    if draw.chance(0.6):
        spec = {"selector": selector_of_labels(draw)}
        found.append(thing("ReplicaSet", "rs0", "apps/v1", namespace="default", spec=spec))
    return found


def wish(draw: Draw, pod: JsonObject, share: float) -> None:
    """Let a pod want things, each with this likelihood."""
    spec = pod["spec"]
    affinity: JsonObject = {}
    for side in ("podAffinity", "podAntiAffinity"):
        if draw.chance(share):
            affinity[side] = pod_affinity(draw, 0.35 if side == "podAffinity" else 0.5)
    if draw.chance(share):
        affinity["nodeAffinity"] = node_affinity(draw)
    if affinity:
        spec["affinity"] = affinity
    if draw.chance(share):
        spec["topologySpreadConstraints"] = list(spread_constraints(draw).values())
    if draw.chance(share):
        spec["tolerations"] = [toleration(draw) for _ in range(draw.randint(1, 3))]
    if draw.chance(share / 3):
        spec["nodeSelector"] = {"disk": "ssd"}
    if draw.chance(share / 2):
        spec["containers"][0]["ports"] = [port(draw) for _ in range(draw.choice((1, 1, 2)))]
    if draw.chance(share):
        spec["containers"][0]["image"] = draw.choice(_IMAGES)
    if draw.chance(share):
        spec["priority"] = draw.choice((0, 10, 100))


def selector_of_labels(draw: Draw) -> JsonObject:
    """Return a label selector, of any form and often of none."""
    selector: JsonObject = {}
    if draw.chance(0.6):
        selector["matchLabels"] = draw.fields(0.6, app=draw.choice(objects.APPS), tier="front")
    if draw.chance(0.4):
        key = draw.choice(tuple(_LABELS))
        operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        expression: JsonObject = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = draw.some(_LABELS[key], least=1)
        selector["matchExpressions"] = [expression]
    return selector


def pod_affinity(draw: Draw, required: float) -> JsonObject:
    """Return terms of affinity to pods, or against."""
    found: JsonObject = {}
    if draw.chance(required):
        terms = [_affinity_term(draw) for _ in range(draw.choice((1, 1, 2)))]
        found["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if draw.chance(0.6):
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": draw.randint(1, 100), "podAffinityTerm": _affinity_term(draw)}
            for _ in range(draw.choice((1, 2)))
        ]
    return found


def _affinity_term(draw: Draw) -> JsonObject:
    term: JsonObject = {"topologyKey": draw.choice(objects.TOPOLOGY)}
    if draw.chance(0.95):
        term["labelSelector"] = selector_of_labels(draw)
    if draw.chance(0.2):
        term["namespaces"] = draw.some(objects.NAMESPACES)
    if draw.chance(0.25):
        by_label = {"matchLabels": {"env": "prod"}}
        by_key = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
        term["namespaceSelector"] = draw.choice(({}, by_label, by_key))
    term |= draw.fields(0.15, matchLabelKeys=["pod-template-hash"], mismatchLabelKeys=["tier"])
    return term


def node_affinity(draw: Draw) -> JsonObject:
    """Return terms of affinity to nodes."""
    found: JsonObject = {}
    if draw.chance(0.6):
        terms = [_node_term(draw) for _ in range(draw.choice((1, 1, 2)))]
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if draw.chance(0.6):
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": draw.randint(1, 100), "preference": _node_term(draw)}
            for _ in range(draw.choice((1, 2, 3)))
        ]
    return found


def _node_term(draw: Draw) -> JsonObject:
    term: JsonObject = {}
    if draw.chance(0.85):
        term["matchExpressions"] = [_node_expression(draw) for _ in range(draw.choice((1, 1, 2)))]
    if draw.chance(0.2):
        names = [f"n{draw.randint(0, 9)}"]
        if draw.chance(0.05):
            names.append("n0")  # an error: an API would have refused it
        operator = draw.choice(("In", "In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": names}]
    return term


def _node_expression(draw: Draw) -> JsonObject:
    if draw.chance(0.2):
        operator = draw.choice(("Gt", "Lt"))
        return {"key": "gen", "operator": operator, "values": [str(draw.randint(0, 9))]}
    key = draw.choice(("disk", objects.ZONE, objects.HOSTNAME, "missing"))
    operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    values = draw.some(("ssd", "hdd", "z0", "z1", "n0", "n1", "n2"), least=1)
    return {"key": key, "operator": operator, "values": values}


def spread_constraints(draw: Draw) -> dict[tuple[str, str], JsonObject]:
    """Return constraints by what an API has only once."""
    found: dict[tuple[str, str], JsonObject] = {}
    for _ in range(draw.choice((1, 1, 2, 3))):
        key = draw.choice(objects.TOPOLOGY)
        action = draw.choice(("DoNotSchedule", "ScheduleAnyway"))
        one: JsonObject = {"maxSkew": draw.choice((1, 1, 2, 3)), "topologyKey": key}
        one["whenUnsatisfiable"] = action
        if draw.chance(0.9):
            one["labelSelector"] = selector_of_labels(draw)
        if action == "DoNotSchedule" and draw.chance(0.3):
            one["minDomains"] = draw.randint(1, 5)
        one |= draw.fields(
            0.3,
            nodeAffinityPolicy=draw.choice(("Honor", "Ignore")),
            nodeTaintsPolicy=draw.choice(("Honor", "Ignore")),
            matchLabelKeys=["pod-template-hash"],
        )
        found[key, action] = one
    return found


def toleration(draw: Draw) -> JsonObject:
    """Return a toleration, of a key or of all."""
    if draw.chance(0.1):
        return {"operator": "Exists"}
    found: JsonObject = {"key": draw.choice(("gpu", "spot", "node.kubernetes.io/unschedulable"))}
    if draw.chance(0.3):
        found["operator"] = "Exists"
    else:
        found |= draw.fields(0.7, operator="Equal", value=draw.choice(("a", "b", "7")))
    effect = draw.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
    return found | draw.fields(0.5, effect=effect)


def port(draw: Draw) -> JsonObject:
    """Return a port of the host that others may want too."""
    return {
        "containerPort": 80,
        "hostPort": draw.choice((8080, 8081, 9090)),
        **draw.fields(
            0.6,
            protocol=draw.choice(("TCP", "UDP", "SCTP")),
            hostIP=draw.choice(("0.0.0.0", "127.0.0.1", "10.1.2.3")),
        ),
    }
