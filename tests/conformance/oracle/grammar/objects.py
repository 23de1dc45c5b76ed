"""Namespaces, nodes and pods, with what every family needs: resources, labels, requests."""

from __future__ import annotations

from conformance.oracle.grammar.draw import Draw, JsonObject

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
TOPOLOGY = (HOSTNAME, ZONE, ZONE, REGION, "disk")
APPS = ("web", "db", "cache")
NAMESPACES = ("default", "team-a", "team-b")
LONG_AGO = "2026-03-01T00:00:00Z"


def thing(kind: str, name: str, version: str = "v1", **parts: object) -> JsonObject:
    """Return an object of the API; its namespace, if any, is given as ``namespace``."""
    metadata = {"name": name}
    if namespace := parts.pop("namespace", None):
        metadata["namespace"] = str(namespace)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def namespaces(draw: Draw) -> list[JsonObject]:
    """Return all namespaces, labelled."""
    found = []
    for name in NAMESPACES:
        one = thing("Namespace", name)
        labels = {"kubernetes.io/metadata.name": name, "env": draw.choice(("dev", "prod"))}
        one["metadata"]["labels"] = labels | draw.fields(0.5, team=name)
        found.append(one)
    return found


def node(draw: Draw, name: str, *, small: bool = False) -> JsonObject:
    """Return a node; a small one is soon full."""
    labels = {HOSTNAME: name, ZONE: draw.choice(("z0", "z1", "z2")), "gen": str(draw.randint(1, 9))}
    labels |= draw.fields(0.6, disk=draw.choice(("ssd", "hdd")))
    if draw.chance(0.5):
        labels[REGION] = draw.choice(("r0", "r1"))
    if draw.chance(0.15):
        del labels[draw.choice((HOSTNAME, ZONE))]
    allocatable = {
        "cpu": draw.choice(("2", "3", "4") if small else ("8", "16", "31.5")),
        "memory": draw.choice(("4Gi", "8Gi") if small else ("32Gi", "16266016Ki", "32e9")),
        "pods": draw.choice(("3", "5", "8") if small else ("110", "110", "8")),
    }
    if draw.chance(0.3):
        allocatable["ephemeral-storage"] = draw.choice(("10Gi", "95551679124"))
    if draw.chance(0.25):
        allocatable["example.com/foo"] = draw.choice(("0", "1", "3"))
    spec: JsonObject = {}
    if draw.chance(0.2):
        spec["taints"] = [taint(draw) for _ in range(draw.choice((1, 1, 2)))]
    if draw.chance(0.06):
        spec["unschedulable"] = True
    made = thing(
        "Node", name, spec=spec, status={"capacity": allocatable, "allocatable": allocatable}
    )
    made["metadata"]["labels"] = labels
    return made


def taint(draw: Draw) -> JsonObject:
    """Return a taint that generated tolerations may match."""
    return {
        "key": draw.choice(("gpu", "spot", "node.kubernetes.io/not-ready")),
        "effect": draw.choice(("NoSchedule", "PreferNoSchedule", "NoExecute")),
        **draw.fields(0.7, value=draw.choice(("a", "b", "7"))),
    }


def labels(draw: Draw) -> dict[str, str]:
    """Return labels of a pod."""
    return draw.fields(
        0.75,
        **{
            "app": draw.choice(APPS),
            "tier": draw.choice(("front", "back")),
            "pod-template-hash": draw.choice(("h1", "h2")),
        },
    )


def pod(draw: Draw, name: str, namespace: str = "default", **spec: object) -> JsonObject:
    """Return a pod with our schedulerName."""
    made = thing("Pod", name, namespace=namespace, spec=spec, status={})
    made["metadata"] |= {"uid": f"{namespace}/{name}", "labels": labels(draw)}
    made["metadata"]["creationTimestamp"] = f"2026-01-{draw.randint(1, 28):02}T00:00:00Z"
    spec.setdefault("schedulerName", "default-scheduler")
    return made


def pending(draw: Draw, **spec: object) -> JsonObject:
    """Return the pod that a decision is about."""
    return pod(draw, "pending", **spec)


def running(
    draw: Draw, name: str, node_name: str, namespace: str | None = None, **spec: object
) -> JsonObject:
    """Return a pod on a node, perhaps being deleted.

    All have started before the scripts do (2023): one that has not counts as starting now.
    """
    namespace = namespace or draw.choice(("default", "default", "team-a"))
    made = pod(draw, name, namespace, nodeName=node_name, **spec)
    made["status"]["phase"] = "Running"
    made["status"]["startTime"] = f"2022-02-0{draw.randint(1, 9)}T{draw.randint(0, 23):02}:00:00Z"
    if draw.chance(0.1):
        made["metadata"] |= {"deletionTimestamp": LONG_AGO, "finalizers": ["x/y"]}
        if draw.chance(0.5):
            made["status"]["conditions"] = [
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            ]
    return made


def requests(draw: Draw, *, small: bool = False) -> JsonObject:
    """Return the resources of a container."""
    amounts = draw.fields(
        0.85,
        cpu=draw.choice(("250m", "500m", "1", "2") if small else ("0", "1m", "100m", "0.5", "2")),
        memory=draw.choice(("512Mi", "1Gi", "2Gi") if small else ("0", "64Mi", "1.5Gi", "2e9")),
    )
    asked: JsonObject = {"requests": amounts}
    if draw.chance(0.1):
        amounts["ephemeral-storage"] = draw.choice(("1Gi", "8Gi"))
    if draw.chance(0.1):
        amounts["example.com/foo"] = "1"
        asked["limits"] = {"example.com/foo": "1"}
    return asked


def containers(draw: Draw, *, small: bool = False) -> JsonObject:
    """Return the part of a pod's spec with its requests, in all possible forms."""
    found: JsonObject = {
        "containers": [
            {"name": f"c{n}", "image": "pause", "resources": requests(draw, small=small)}
            for n in range(draw.choice((1, 1, 1, 2)))
        ]
    }
    if draw.chance(0.15):
        found["initContainers"] = [
            {
                "name": f"i{n}",
                "resources": requests(draw, small=small),
                **draw.fields(0.5, restartPolicy="Always"),
            }
            for n in range(draw.choice((1, 2, 3)))
        ]
    if draw.chance(0.08):
        found["overhead"] = {"cpu": "120m", "memory": "64Mi"}
    if draw.chance(0.1):
        found["resources"] = {"requests": draw.fields(0.8, cpu="2500m", memory="3Gi")}
    return found


def container_statuses(draw: Draw, spec: JsonObject) -> JsonObject:
    """Return container statuses after an in-place resize: allocated and actual resources."""
    statuses = []
    for container in spec["containers"]:
        if draw.chance(0.8):
            status: JsonObject = {"name": container["name"]}
            # No empty maps: an API server stores none, and kube-scheduler tells them from none.
            if draw.chance(0.8) and (amounts := requests(draw, small=True)["requests"]):
                status["allocatedResources"] = amounts
            if draw.chance(0.8):
                resources = requests(draw, small=True)
                status["resources"] = {side: some for side, some in resources.items() if some}
            statuses.append(status)
    found: JsonObject = {"containerStatuses": statuses}
    if draw.chance(0.4):
        reason = draw.choice(("Infeasible", "Deferred"))
        found["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    if draw.chance(0.2):
        found["allocatedResources"] = {"cpu": "3"}
        found["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return found
