"""Nodes, namespaces, pods: the constraints of default plugins that need nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import HOSTNAME, LONG_AGO, ZONE, thing
from conformance.wakeups.world import Change, Kind

NODES = ("n0", "n1", "n2")
FOO = "example.com/foo"
_GPU, _OF_GPUS = {"key": "gpu", "effect": "NoSchedule"}, {"key": "gpu", "operator": "Exists"}

Wish = Callable[[Draw, JsonObject], None]
"""Adds a constraint to a pod."""


# ---- nodes ---------------------------------------------------------------------------------------


def _labels(draw: Draw) -> JsonObject:
    return {ZONE: draw.choice(("z0", "z1", None)), "disk": draw.choice(("ssd", None))}


def _room(draw: Draw) -> JsonObject:
    amounts = {
        "cpu": draw.choice(("1", "2", "8")),
        "memory": "8Gi",
        "pods": draw.choice(("1", "10", "10")),
        FOO: draw.choice(("0", "1")),
    }
    return {"allocatable": amounts, "capacity": amounts}


def _taints(draw: Draw) -> list[JsonObject]:
    if draw.chance(0.75):
        return []
    return [{**_GPU, **draw.choice(({}, {"value": "a"}, {"effect": "NoExecute"}))}]


def _features(draw: Draw) -> list[str]:
    return draw.choice(([], ["UserNamespacesHostNetworkSupport"]))


def node(draw: Draw, name: str) -> JsonObject:
    """Return a node."""
    labels = {HOSTNAME: name, **{key: value for key, value in _labels(draw).items() if value}}
    made = thing("Node", name, spec={"taints": _taints(draw)}, status=_room(draw))
    made["spec"]["unschedulable"] = draw.chance(0.1)
    made["metadata"]["labels"] = labels
    made["status"]["declaredFeatures"] = _features(draw)
    return made


NODE = Kind(
    NODES,
    node,
    (
        lambda draw, name: {"metadata": {"labels": _labels(draw)}},
        lambda draw, name: {"status": _room(draw)},
        lambda draw, name: {"spec": {"taints": _taints(draw)}},
        lambda draw, name: {"spec": {"unschedulable": draw.chance(0.2)}},
        lambda draw, name: {"status": {"declaredFeatures": _features(draw)}},
        lambda draw, name: {"metadata": {"annotations": {"x": str(draw.random())}}},
    ),
    often=3,
)


# ---- namespaces ----------------------------------------------------------------------------------


def _namespace(draw: Draw, name: str) -> JsonObject:
    made = thing("Namespace", name)
    made["metadata"]["labels"] = {"env": draw.choice(("dev", "prod"))}
    return made


NAMESPACE = Kind(
    ("default", "team-a"),
    _namespace,
    (lambda draw, name: {"metadata": {"labels": {"env": draw.choice(("dev", "prod"))}}},),
    often=0.5,
)


# ---- wishes --------------------------------------------------------------------------------------


def _cpu(draw: Draw, pod: JsonObject) -> None:
    amounts = draw.choice(({"cpu": "1"}, {"cpu": "2"}, {"cpu": "5"}, {FOO: "1"}))
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}


def _selector(draw: Draw, pod: JsonObject) -> None:
    pod["spec"]["nodeSelector"] = draw.choice(({"disk": "ssd"}, {ZONE: "z0"}))


def _node_affinity(draw: Draw, pod: JsonObject) -> None:
    expression = {"key": ZONE, "operator": draw.choice(("In", "NotIn")), "values": ["z1"]}
    field = {"key": "metadata.name", "operator": "In", "values": [draw.choice(NODES)]}
    term = draw.choice(({"matchExpressions": [expression]}, {"matchFields": [field]}))
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pod["spec"].setdefault("affinity", {})["nodeAffinity"] = required


def _toleration(draw: Draw, pod: JsonObject) -> None:
    pod["spec"]["tolerations"] = [_OF_GPUS]


def _port(draw: Draw, pod: JsonObject) -> None:
    address = draw.choice(("", "127.0.0.1", "10.0.0.1"))
    port = {"containerPort": 80, "hostPort": 8080, "hostIP": address}
    pod["spec"]["containers"][0]["ports"] = [port]


def _term(draw: Draw) -> JsonObject:
    selector = draw.choice(
        (
            {"matchLabels": {"app": "web"}},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
            {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        )
    )
    term: JsonObject = {"labelSelector": selector, "topologyKey": draw.choice((ZONE, HOSTNAME))}
    if draw.chance(0.2):
        term["namespaces"] = ["team-a"]
    if draw.chance(0.25):
        term["namespaceSelector"] = draw.choice(({}, {"matchLabels": {"env": "prod"}}))
    term |= draw.fields(0.1, matchLabelKeys=["tier"], mismatchLabelKeys=["tier"])
    return term


def _pod_affinity(draw: Draw, pod: JsonObject) -> None:
    side = draw.choice(("podAffinity", "podAntiAffinity"))
    terms = [_term(draw) for _ in range(draw.choice((1, 1, 2)))]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    pod["spec"].setdefault("affinity", {})[side] = required


def _spread(draw: Draw, pod: JsonObject) -> None:
    pod["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": draw.choice((1, 1, 2)),
            "topologyKey": draw.choice((ZONE, HOSTNAME)),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": draw.choice(
                ({"matchLabels": {"app": "web"}}, {"matchLabels": {"tier": "a"}})
            ),
            **draw.fields(
                0.25,
                minDomains=draw.choice((2, 3)),
                nodeAffinityPolicy=draw.choice(("Honor", "Ignore")),
                nodeTaintsPolicy=draw.choice(("Honor", "Ignore")),
                matchLabelKeys=["tier"],
            ),
        }
        for _ in range(draw.choice((1, 1, 2)))
    ]


def _gate(draw: Draw, pod: JsonObject) -> None:
    pod["spec"]["schedulingGates"] = draw.choice(([{"name": "g"}], [{"name": "g"}, {"name": "h"}]))


def _feature(draw: Draw, pod: JsonObject) -> None:
    pod["spec"] |= {"hostUsers": False, "hostNetwork": True}


WISHES: Sequence[Wish] = (
    _cpu,
    _cpu,
    _selector,
    _node_affinity,
    _toleration,
    _port,
    _pod_affinity,
    _pod_affinity,
    _spread,
    _gate,
    _feature,
)


# ---- pods ----------------------------------------------------------------------------------------


def _pod_labels(draw: Draw) -> JsonObject:
    return {"app": draw.choice(("web", "db", None)), "tier": draw.choice(("a", "b", None))}


def pod(draw: Draw, name: str) -> JsonObject:
    """Return a pod without any constraint."""
    namespace = draw.choice(("default", "default", "team-a"))
    spec: JsonObject = {"schedulerName": "default-scheduler"}
    spec["containers"] = [{"name": "c", "image": "pause"}]
    made = thing("Pod", name, namespace=namespace, spec=spec, status={})
    labels = {key: value for key, value in _pod_labels(draw).items() if value}
    created = f"2022-03-01T00:00:{draw.randrange(60):02}Z"
    made["metadata"] |= {"labels": labels, "creationTimestamp": created}
    made["metadata"]["uid"] = f"{name}-{draw.randrange(10**9)}"
    made["status"]["startTime"] = created
    return made


POD_CHANGES: Sequence[Change] = (
    lambda draw, name: {"metadata": {"labels": _pod_labels(draw)}},
    lambda draw, name: {"metadata": {"labels": _pod_labels(draw)}},
    lambda draw, name: {"spec": {"schedulingGates": None}},
    lambda draw, name: {"spec": {"tolerations": [_OF_GPUS, {"operator": "Exists"}]}},
    lambda draw, name: {"metadata": {"deletionTimestamp": LONG_AGO, "finalizers": ["x/y"]}},
    lambda draw, name: {"status": {"phase": draw.choice(("Succeeded", "Failed"))}},
    lambda draw, name: {"metadata": {"annotations": {"x": str(draw.random())}}},
)


def pod_kinds(
    wishes: Sequence[Wish] = WISHES,
    changes: Sequence[Change] = POD_CHANGES,
    changes_on_nodes: Sequence[Change] = (),
    wishes_on_nodes: Sequence[Wish] = (),
) -> list[Kind]:
    """Return pods that wait, with some of these wishes each, and pods that have their node.

    ``changes_on_nodes``, ``wishes_on_nodes``: of the latter, where they differ.
    """

    def wishing(draw: Draw, name: str, some: Sequence[Wish]) -> JsonObject:
        made = pod(draw, name)
        for wish in draw.sample(some, min(len(some), draw.choice((0, 1, 1, 2, 3)))):
            wish(draw, made)
        made["spec"].setdefault("priority", draw.choice((0, 0, 0, 10)))
        return made

    def pending(draw: Draw, name: str) -> JsonObject:
        return wishing(draw, name, wishes)

    def assigned(draw: Draw, name: str) -> JsonObject:
        made = wishing(draw, name, wishes_on_nodes or wishes)
        made["spec"].pop("schedulingGates", None)
        made["spec"]["nodeName"] = draw.choice(NODES)
        if draw.chance(0.1):
            made["metadata"] |= {"deletionTimestamp": LONG_AGO, "finalizers": ["x/y"]}
        return made

    return [
        Kind([f"p{n}" for n in range(6)], pending, changes, often=3, at_start=0.5),
        Kind([f"a{n}" for n in range(4)], assigned, changes_on_nodes or changes, often=2),
    ]


CORE = [NODE, NAMESPACE, *pod_kinds()]
