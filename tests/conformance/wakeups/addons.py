"""Add-ons: the objects, labels and annotations that each of them reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import HOSTNAME, REGION, ZONE, thing
from conformance.wakeups import core
from conformance.wakeups.core import Wish
from conformance.wakeups.world import Change, Kind, World

_GPU = "nvidia.com/gpu"
_ZONES = ("z0", "z1")


def world_of(
    name: str,
    kinds: Sequence[Kind],
    wishes: Sequence[Wish],
    args: Mapping[str, Any] = {},
    wishes_on_nodes: Sequence[Wish] = (),
    beside: Mapping[str, Mapping[str, Any]] = {},
    node_changes: Sequence[Change] = (),
) -> World:
    """Return the world of an add-on that is enabled for all points, after the default plugins.

    ``wishes_on_nodes``: of the pods that others have bound, where they differ. ``beside``: the
    arguments of the add-ons that it needs, by name. ``node_changes``: beside those of any node.
    """
    plugins = {**beside, name: args}
    points: JsonObject = {"multiPoint": {"enabled": [{"name": one} for one in plugins]}}
    for sorting in plugins.keys() & {"Coscheduling", "JobBarrier"}:
        points["queueSort"] = {"enabled": [{"name": sorting}], "disabled": [{"name": "*"}]}
    if name in ("CapacityScheduling", "GangPreemption"):
        points["multiPoint"]["disabled"] = [{"name": "DefaultPreemption"}]
    arguments = [{"name": one, "args": dict(given)} for one, given in plugins.items()]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": points, "pluginConfig": arguments}],
    }
    # What the add-on looks at, alone or with requests.
    further = (cpu, core.WISHES[2])
    pods = core.pod_kinds((*wishes, *wishes, *further), wishes_on_nodes=wishes_on_nodes)
    nodes = replace(_NODE, changes=(*_NODE.changes, *node_changes))
    return World([nodes, *kinds, *pods], config=config)


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


def cpu(draw: Draw, pod: JsonObject) -> None:
    """Have a pod request CPUs."""
    amounts = {"cpu": draw.choice(("1", "2"))}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts}


def annotate(pod: JsonObject, **annotations: str) -> None:
    """Add annotations to a pod."""
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
    cpu(draw, pod)
    annotate(pod, **{"scheduling.volcano.sh/queue-name": draw.choice(("qa", "qb", "default"))})


QUOTAS = world_of(
    "CapacityScheduling",
    [Kind(("default", "team-a"), _quota, (lambda draw, name: _limits(draw),), often=2)],
    (cpu, cpu),
)
QUEUES = world_of(
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


DEVICES = world_of(
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


NUMA = world_of(
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


RESERVATIONS = world_of("Reservation", [Kind(("rv0", "rv1"), _reservation, often=2)], (cpu, cpu))

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


NETWORK = world_of(
    "NetworkOverhead",
    [
        Kind(("shop",), _app_group, (_dependencies,), at_start=0.9),
        Kind(("nt-default",), _network, (_costs,), at_start=0.9),
    ],
    (_of_app, _of_app),
)

# ---- LoadAwareScheduling, Colocation -------------------------------------------------------------

_FIRST_SECOND = 1_700_000_000
_BATCH = "kubernetes.io/batch-cpu"


def _usage(draw: Draw, name: str) -> JsonObject:
    """Return a measurement of some moment of the script."""
    measured_at = datetime.fromtimestamp(_FIRST_SECOND + draw.randrange(300), UTC)
    used = {"cpu": f"{draw.choice((0, 300, 900, 3000))}m", "memory": "1Gi"}
    return {"timestamp": measured_at.isoformat(), "usage": used}


def _measurement(draw: Draw, name: str) -> JsonObject:
    return {**thing("NodeMetrics", name, "metrics.k8s.io/v1beta1"), **_usage(draw, name)}


def _own_threshold(draw: Draw, name: str) -> JsonObject:
    own = draw.choice((None, '{"usageThresholds": {"cpu": 95}}'))
    return {"metadata": {"annotations": {"scheduling.koordinator.sh/usage-thresholds": own}}}


def _of_daemon_set(draw: Draw, pod: JsonObject) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]


LOADS = replace(
    world_of(
        "LoadAwareScheduling",
        [Kind(core.NODES, _measurement, (_usage,), often=3)],
        (cpu, cpu, _of_daemon_set),
        {
            "usageThresholds": {"cpu": 65},
            "nodeMetricExpirationSeconds": 100,
            "enableScheduleWhenNodeMetricsExpired": False,
        },
        node_changes=(_own_threshold,),
    ),
    # Metrics are read every 30 s.
    pauses=(1, 12, 31, 31, 62),
)


def _batch(draw: Draw, name: str) -> JsonObject:
    """Return what a controller has measured on a node."""
    measured_at = datetime.fromtimestamp(_FIRST_SECOND + draw.randrange(-60, 120), UTC)
    stamp = draw.choice((measured_at.isoformat(), None))
    return {
        "metadata": {"annotations": {"colocation.proreus.dev/measured-at": stamp}},
        "status": {"allocatable": {_BATCH: draw.choice((0, 1000, 3000))}},
    }


def _offline(draw: Draw, pod: JsonObject) -> None:
    amounts = {_BATCH: draw.choice(("500", "1000", "2000"))}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}


COLOCATION = world_of("Colocation", [], (cpu, _offline, _offline), node_changes=(_batch,) * 3)

# ---- JobBarrier, DelayScheduling -----------------------------------------------------------------


def _in_job(draw: Draw, pod: JsonObject) -> None:
    pod["metadata"]["namespace"] = "default"
    pod["metadata"]["labels"]["proreus.dev/job"] = "train"
    annotate(pod, **{"proreus.dev/min-members": draw.choice(("1", "2", "3"))})


def _prefers(draw: Draw, pod: JsonObject) -> None:
    cpu(draw, pod)
    annotate(pod, **{"proreus.dev/prefer-nodes": draw.choice(core.NODES)})


JOBS = world_of("JobBarrier", [], (_in_job, _in_job))
DELAYS = world_of(
    "DelayScheduling",
    [],
    (_prefers, _prefers),
    {"levels": [{"name": "node", "key": "nodeName"}, {"name": "host", "key": HOSTNAME}]},
)
