"""Add-ons: the objects, labels and annotations that each of them reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import HOSTNAME, REGION, ZONE, thing
from conformance.wakeups import core
from conformance.wakeups.core import Wish
from conformance.wakeups.world import Kind, World

_GPU = "nvidia.com/gpu"
_ZONES = ("z0", "z1")


def _world(
    name: str,
    kinds: Sequence[Kind],
    wishes: Sequence[Wish],
    args: Mapping[str, Any] = {},
    wishes_on_nodes: Sequence[Wish] = (),
) -> World:
    """Return the world of an add-on that is enabled for all points, after the default plugins.

    ``wishes_on_nodes``: of the pods that others have bound, where they differ.
    """
    points: JsonObject = {"multiPoint": {"enabled": [{"name": name}]}}
    if name in ("Coscheduling", "JobBarrier"):
        points["queueSort"] = {"enabled": [{"name": name}], "disabled": [{"name": "*"}]}
    if name == "CapacityScheduling":
        points["multiPoint"]["disabled"] = [{"name": "DefaultPreemption"}]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": points, "pluginConfig": [{"name": name, "args": dict(args)}]}],
    }
    # What the add-on looks at, alone or with requests.
    further = (_cpu, core.WISHES[2])
    pods = core.pod_kinds((*wishes, *wishes, *further), wishes_on_nodes=wishes_on_nodes)
    return World([_NODE, *kinds, *pods], config=config)


def _amounts(draw: Draw) -> JsonObject:
    cpu = draw.choice(("1", "2", "4"))
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10", _GPU: draw.choice(("0", "1", "2"))}
    return {"status": {"allocatable": amounts, "capacity": amounts}}


def _node(draw: Draw, name: str) -> JsonObject:
    made = core.node(draw, name) | _amounts(draw)
    made["metadata"]["labels"][REGION] = "r0"
    return made


_NODE = Kind(
    core.NODES, _node, (*core.NODE.changes[:3:2], lambda draw, name: _amounts(draw)), often=2
)


def _cpu(draw: Draw, pod: JsonObject) -> None:
    amounts = {"cpu": draw.choice(("1", "2"))}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts}


def _annotate(pod: JsonObject, **annotations: str) -> None:
    pod["metadata"].setdefault("annotations", {}).update(annotations)


# ---- CapacityScheduling --------------------------------------------------------------------------


def _limits(draw: Draw) -> JsonObject:
    least = draw.choice((0, 1, 2))
    most = {"cpu": str(least + draw.choice((0, 1, 3)))}
    return {"spec": {"min": {"cpu": str(least)}, "max": most}}


def _quota(draw: Draw, name: str) -> JsonObject:
    version = "scheduling.x-k8s.io/v1alpha1"
    return {**thing("ElasticQuota", "quota", version, namespace=name), **_limits(draw)}


def _shares(draw: Draw) -> JsonObject:
    deserved = draw.choice((0, 1, 2))
    capability = {"cpu": str(deserved + draw.choice((0, 1, 3)))}
    return {"spec": {"deserved": {"cpu": str(deserved)}, "capability": capability}}


def _queue(draw: Draw, name: str) -> JsonObject:
    return {**thing("Queue", name, "scheduling.volcano.sh/v1beta1"), **_shares(draw)}


def _in_queue(draw: Draw, pod: JsonObject) -> None:
    _cpu(draw, pod)
    _annotate(pod, **{"scheduling.volcano.sh/queue-name": draw.choice(("qa", "qb", "default"))})


QUOTAS = _world(
    "CapacityScheduling",
    [Kind(("default", "team-a"), _quota, (lambda draw, name: _limits(draw),), often=2)],
    (_cpu, _cpu),
)
QUEUES = _world(
    "CapacityScheduling",
    [Kind(("qa", "qb", "default"), _queue, (lambda draw, name: _shares(draw),), often=2)],
    (_in_queue, _in_queue),
    {"queues": {"source": "Volcano", "refreshPeriod": "5s"}},
)

# ---- DeviceShare ---------------------------------------------------------------------------------


def _devices(draw: Draw, name: str) -> JsonObject:
    healthy = {"type": "gpu", "health": draw.chance(0.6), "minor": 0}
    healthy["resources"] = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "16Gi"}
    return {"spec": {"devices": [{**healthy, "minor": n} for n in range(draw.choice((1, 2)))]}}


def _device(draw: Draw, name: str) -> JsonObject:
    return {**thing("Device", name, "scheduling.koordinator.sh/v1alpha1"), **_devices(draw, name)}


def _gpu(draw: Draw, pod: JsonObject) -> None:
    part = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    amounts = draw.choice(({_GPU: "1"}, {_GPU: "2"}, part))
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}


DEVICES = _world(
    "DeviceShare", [Kind(core.NODES, _device, (_devices,), at_start=0.4)], (_gpu, _gpu)
)

# ---- NodeResourceTopologyMatch -------------------------------------------------------------------


def _zones(draw: Draw, name: str) -> JsonObject:
    zones = []
    for number in range(2):
        left = draw.choice(("0", "1", "2"))
        cpu = {"name": "cpu", "capacity": "2", "allocatable": "2", "available": left}
        memory = {"name": "memory", "capacity": "4Gi", "allocatable": "4Gi", "available": "4Gi"}
        zones.append({"name": f"node-{number}", "type": "Node", "resources": [cpu, memory]})
    return {"zones": zones}


def _topology(draw: Draw, name: str) -> JsonObject:
    policy = {"name": "topologyManagerPolicy", "value": "single-numa-node"}
    scope = {"name": "topologyManagerScope", "value": draw.choice(("pod", "container"))}
    made = thing("NodeResourceTopology", name, "topology.node.k8s.io/v1alpha2")
    return {**made, "attributes": [policy, scope], **_zones(draw, name)}


def _guaranteed(draw: Draw, pod: JsonObject) -> None:
    amounts = {"cpu": draw.choice(("1", "2")), "memory": "1Gi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}


NUMA = _world(
    "NodeResourceTopologyMatch",
    [Kind(core.NODES, _topology, (_zones,), often=2)],
    (_guaranteed, _guaranteed),
)

# ---- Reservation ---------------------------------------------------------------------------------


def _reservation(draw: Draw, name: str) -> JsonObject:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "template": {"metadata": {"namespace": "default"}, "spec": {"containers": [container]}},
        "owners": [{"labelSelector": {"matchLabels": {"app": draw.choice(("web", "db"))}}}],
        "allocateOnce": draw.chance(0.5),
    }
    made = thing("Reservation", name, "scheduling.koordinator.sh/v1alpha1", spec=spec, status={})
    made["metadata"]["uid"] = f"{name}-{draw.randrange(10**9)}"
    return made


RESERVATIONS = _world("Reservation", [Kind(("rv0", "rv1"), _reservation, often=2)], (_cpu, _cpu))

# ---- NetworkOverhead -----------------------------------------------------------------------------


def _dependencies(draw: Draw, name: str) -> JsonObject:
    on = {"workload": {"selector": "db"}, "maxNetworkCost": draw.choice((1, 10))}
    return {"spec": {"workloads": [{"workload": {"selector": "web"}, "dependencies": [on]}]}}


def _app_group(draw: Draw, name: str) -> JsonObject:
    made = thing("AppGroup", name, "appgroup.diktyo.x-k8s.io/v1alpha1", namespace="default")
    return {**made, **_dependencies(draw, name), "status": {}}


def _costs(draw: Draw, name: str) -> JsonObject:
    origins = [
        {"origin": one, "costList": [{"destination": two, "networkCost": draw.choice((1, 5, 20))}]}
        for one, two in (_ZONES, _ZONES[::-1])
    ]
    lists = [
        {"topologyKey": ZONE, "originList": origins},
        {"topologyKey": REGION, "originList": []},
    ]
    return {"spec": {"weights": [{"name": "UserDefined", "topologyList": lists}]}}


def _network(draw: Draw, name: str) -> JsonObject:
    version = "networktopology.diktyo.x-k8s.io/v1alpha1"
    return {**thing("NetworkTopology", name, version, namespace="default"), **_costs(draw, name)}


def _of_app(draw: Draw, pod: JsonObject) -> None:
    labels = {"appgroup.diktyo.x-k8s.io": "shop"}
    labels["appgroup.diktyo.x-k8s.io.workload"] = draw.choice(("web", "db"))
    pod["metadata"] |= {"labels": labels, "namespace": "default"}


NETWORK = _world(
    "NetworkOverhead",
    [
        Kind(("shop",), _app_group, (_dependencies,), at_start=0.9),
        Kind(("nt-default",), _network, (_costs,), at_start=0.9),
    ],
    (_of_app, _of_app),
)

# ---- Coscheduling, JobBarrier, DelayScheduling ---------------------------------------------------


def _members(draw: Draw, name: str) -> JsonObject:
    return {"spec": {"minMember": draw.choice((1, 2, 3))}}


def _pod_group(draw: Draw, name: str) -> JsonObject:
    version = "scheduling.x-k8s.io/v1alpha1"
    return {**thing("PodGroup", name, version, namespace="default"), **_members(draw, name)}


def _in_gang(draw: Draw, pod: JsonObject) -> None:
    pod["metadata"]["namespace"] = "default"
    pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = draw.choice(("g0", "g1"))
    if draw.chance(0.5):
        _cpu(draw, pod)


def _in_job(draw: Draw, pod: JsonObject) -> None:
    pod["metadata"]["namespace"] = "default"
    pod["metadata"]["labels"]["proreus.dev/job"] = "train"
    _annotate(pod, **{"proreus.dev/min-members": draw.choice(("1", "2", "3"))})


def _prefers(draw: Draw, pod: JsonObject) -> None:
    _cpu(draw, pod)
    _annotate(pod, **{"proreus.dev/prefer-nodes": draw.choice(core.NODES)})


_GANGS = [Kind(("g0", "g1"), _pod_group, (_members,), often=2)]
# Nobody else binds the members of a gang. Mode ``permit`` has none of this: as in the original,
# and as recorded of it, siblings of pods that run wait for an event.
PLANNED_GANGS = _world(
    "Coscheduling", _GANGS, (_in_gang, _in_gang, _in_gang), {"mode": "plan"}, (_cpu,)
)
JOBS = _world("JobBarrier", [], (_in_job, _in_job))
DELAYS = _world(
    "DelayScheduling",
    [],
    (_prefers, _prefers),
    {"levels": [{"name": "node", "key": "nodeName"}, {"name": "host", "key": HOSTNAME}]},
)
