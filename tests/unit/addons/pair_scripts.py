"""Random scripts for sets of add-ons: units of pods that use what some of them read.

A unit has nodes of its own, which hold just its pods. So all of its pods run, whichever add-ons are
enabled, unless one of these has a reason of its own to refuse them (``Unit.refused_by``). What two
add-ons refuse or hold is never the same room, but for faults: of an account that counts a thing
twice, or takes one add-on's means for another's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from proreus.addons.node_resource_topology_match.cache import fingerprint
from proreus.addons.reservation.objects import RESERVATIONS
from proreus.framework import Plugin, QueueSortPlugin
from proreus.objects import PODS
from proreus.plugins.default_preemption import DefaultPreemption
from proreus.process.loading.load import add_ons
from proreus.testing import Harness, make_node

GPU = "nvidia.com/gpu"
BATCH_CPU = "kubernetes.io/batch-cpu"
NUMA = "NodeResourceTopologyMatch"
ROUNDS = 14
"""Half a minute each: longer than the flush of unschedulable pods takes."""


def class_of(name: str) -> type[Plugin]:
    """Return the class of an add-on."""
    return add_ons()[name]()


@dataclass
class Unit:
    """Pods that are alike, ``per_node`` on each of its nodes; ``cpus`` each.

    ``features``: the add-ons whose labels, annotations or objects it has. ``refused_by``: the one
    that keeps its pods from running, "" for none.
    """

    name: str
    nodes: int
    per_node: int
    cpus: int
    features: tuple[str, ...]
    refused_by: str
    by_queue: bool
    reserved: int
    once: bool
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    """Of each pod."""
    guaranteed: bool = False
    objects: list[dict] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.labels["unit"] = self.name
        self.requests["cpu"] = str(self.cpus)
        # A quota is of all that the others have the pods request.
        for feature in sorted(self.features, key=lambda one: one == "CapacityScheduling"):
            FEATURES[feature](self)

    @property
    def size(self) -> int:
        return self.nodes * self.per_node

    def node_names(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.nodes)]

    def requested(self, times: int) -> dict[str, str]:
        """Return the requests of so many pods."""
        return {
            name: f"{int(amount.removesuffix('Gi')) * times}{'Gi' if 'Gi' in amount else ''}"
            for name, amount in self.requests.items()
        }

    def meta(self, name: str = "") -> dict[str, str]:
        return {"name": name or self.name, "namespace": self.name}

    def node(self, name: str) -> Any:
        held = self.per_node + 1 if NUMA in self.features else self.per_node
        further = {
            resource: str(int(amount) * self.per_node)
            for resource, amount in self.requests.items()
            if resource not in ("cpu", "memory")
        }
        if BATCH_CPU in further:
            # The pods' own CPUs come off it as well.
            further[BATCH_CPU] = str((1000 + 1000 * self.cpus) * self.per_node)
        labels = {"unit": self.name, "rack": self.name}
        return make_node(
            name, str(self.cpus * self.per_node), f"{held}Gi", labels=labels, resources=further
        )

    def spec(self, times: int = 1) -> dict:
        requests = self.requested(times)
        resources = {"requests": requests} | ({"limits": requests} if self.guaranteed else {})
        container = {"name": "c", "image": "i", "resources": resources}
        return {"containers": [container], "nodeSelector": {"unit": self.name}}

    def pod(self, name: str) -> dict:
        meta = {**self.meta(name), "labels": self.labels, "annotations": self.annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": self.spec()}


# ---- what add-ons read ---------------------------------------------------------------------------


def _gang(unit: Unit) -> None:
    unit.labels["scheduling.x-k8s.io/pod-group"] = unit.name
    least = unit.size + (unit.refused_by == "Coscheduling")
    unit.objects.append(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": unit.meta(),
            "spec": {"minMember": least, "minResources": {"cpu": str(unit.size * unit.cpus)}},
        }
    )


def _quota(unit: Unit) -> None:
    most = unit.requested(0 if unit.refused_by == "CapacityScheduling" else unit.size)
    if unit.by_queue:
        unit.annotations["scheduling.volcano.sh/queue-name"] = unit.name
        group, kind, meta = "scheduling.volcano.sh/v1beta1", "Queue", {"name": unit.name}
        spec = {"deserved": most, "capability": most}
    else:
        group, kind, meta = "scheduling.x-k8s.io/v1alpha1", "ElasticQuota", unit.meta()
        spec = {"min": most, "max": most}
    unit.objects.append({"apiVersion": group, "kind": kind, "metadata": meta, "spec": spec})


def _devices(unit: Unit) -> None:
    unit.requests[GPU] = "2"


def _batch(unit: Unit) -> None:
    unit.requests[BATCH_CPU] = "1000"


def _numa(unit: Unit) -> None:
    unit.requests["memory"], unit.guaranteed = "1Gi", True


def _job(unit: Unit) -> None:
    unit.labels["proreus.dev/job"] = unit.name
    least = unit.size + (unit.refused_by == "JobBarrier")
    unit.annotations["proreus.dev/min-members"] = str(least)


def _rack(unit: Unit) -> None:
    unit.annotations["kueue.x-k8s.io/podset-required-topology"] = "rack"


def _preference(unit: Unit) -> None:
    unit.annotations["proreus.dev/prefer-node"] = unit.node_names()[0]


def _app_group(unit: Unit) -> None:
    unit.labels["appgroup.diktyo.x-k8s.io"] = "app"
    unit.labels["appgroup.diktyo.x-k8s.io.workload"] = unit.name


def nothing(unit: Unit) -> None:
    """The add-on reads what all pods have."""


FEATURES: dict[str, Callable[[Unit], None]] = dict.fromkeys(add_ons(), nothing) | {
    "Coscheduling": _gang,
    "CapacityScheduling": _quota,
    "DeviceShare": _devices,
    "Colocation": _batch,
    NUMA: _numa,
    "JobBarrier": _job,
    "GroupTopology": _rack,
    "DelayScheduling": _preference,
    "NetworkOverhead": _app_group,
    "TopologicalSort": _app_group,
}
SORT_ONLY = ("QOSSort", "TopologicalSort")
"""Add-ons of which a profile can have one."""
STARTING_TOGETHER = {"Coscheduling", "JobBarrier"}
REFUSING = ("Coscheduling", "CapacityScheduling", NUMA, "JobBarrier")


# ---- scripts -------------------------------------------------------------------------------------


class Script:
    """What happens in a cluster, whichever add-ons are enabled there.

    ``of``: the add-ons that its pods may have to do with.
    """

    def __init__(self, seed: int, of: Sequence[str]) -> None:
        rng = Random(seed)
        self.queues = rng.random() < 0.3
        self.plan = rng.random() < 0.6
        # With its cache, a pod that has no report yet takes room from all zones of its node: also
        # from those that its siblings need before any of them may start.
        self.cached_topologies = rng.random() < 0.6 and not STARTING_TOGETHER & set(of)
        self.units = [self._unit(rng, f"u{number}", of) for number in range(rng.randint(1, 4))]
        self.steps = self._steps(rng)

    def _unit(self, rng: Random, name: str, of: Sequence[str]) -> Unit:
        features = tuple(one for one in of if rng.random() < 0.7)
        refusing = [one for one in REFUSING if one in features]
        refused_by = rng.choice(refusing) if refusing and rng.random() < 0.25 else ""
        per_node = rng.randint(1, 3)
        # A pod that is aligned has to fit in one zone, and so has room for it.
        reserved = 1 if NUMA in features else rng.randint(1, per_node)
        return Unit(
            name,
            rng.randint(1, 2),
            per_node,
            rng.randint(1, 2),
            features,
            refused_by,
            self.queues,
            reserved,
            rng.random() < 0.3,
        )

    def _steps(self, rng: Random) -> list[tuple[str, Any]]:
        steps: list[tuple[str, Any]] = []
        for unit in self.units:
            steps += [("pod", (unit, f"p{number}")) for number in range(unit.size)]
        rng.shuffle(steps)
        for unit in rng.sample(self.units, rng.randint(0, len(self.units))):
            # One that is replaced: what its successor is called, only the script knows.
            place = rng.randint(0, len(steps))
            steps.insert(place, ("replace", (unit, rng.randint(0, unit.size - 1))))
        for _ in range(rng.randint(0, 3)):
            steps.insert(rng.randint(0, len(steps)), ("wait", rng.choice((1, 5, 20))))
        if rng.random() < 0.5:
            steps.insert(rng.randint(0, len(steps)), ("reload", None))
        return steps

    def run(self, add_ons: Sequence[str]) -> Result:
        """Return what came of it with these add-ons."""
        return _Run(self, add_ons).result()


@dataclass(frozen=True)
class Result:
    """The node of each pod, "" for none; the phase of each reservation."""

    nodes: dict[str, str]
    reservations: dict[str, str]
    why: dict[str, str]

    @property
    def bound(self) -> set[str]:
        return {key for key, node in self.nodes.items() if node}


class _Run:
    def __init__(self, script: Script, add_ons: Sequence[str]) -> None:
        self.script, self.add_ons = script, add_ons
        nodes = [unit.node(name) for unit in script.units for name in unit.node_names()]
        objects = [one for unit in script.units for one in unit.objects]
        if script.queues:
            objects.append(_default_queue(script.units))
        classes = [class_of(name) for name in add_ons]
        self.harness = Harness(classes, nodes, objects, config=self._configuration(classes))
        self.report()

    def _configuration(self, classes: Iterable[type[Plugin]]) -> dict:
        points: dict[str, Any] = {"multiPoint": {"enabled": [{"name": n} for n in self.add_ons]}}
        sorts = [one.name for one in classes if issubclass(one, QueueSortPlugin)]
        if sorts:
            # One that does nothing else, if there is one.
            sorts.sort(key=lambda name: name not in SORT_ONLY)
            points["queueSort"] = {"enabled": [{"name": sorts[0]}], "disabled": [{"name": "*"}]}
        if any(issubclass(one, DefaultPreemption) for one in classes):
            points["multiPoint"]["disabled"] = [{"name": "DefaultPreemption"}]
        args = {
            "Coscheduling": {"mode": "plan" if self.script.plan else "permit"},
            "GroupTopology": {"levels": ["rack"]},
            "NodeMetadata": {"metadataKey": "unit", "metadataType": "Number"},
            "CapacityScheduling": {"queues": {"source": "Volcano"}} if self.script.queues else {},
            NUMA: {"cacheResyncPeriodSeconds": 5} if self.script.cached_topologies else {},
        }
        config = [{"name": name, "args": args.get(name, {})} for name in self.add_ons]
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": points, "pluginConfig": config}],
        }

    def result(self) -> Result:
        for unit in self.script.units:
            if "Reservation" in unit.features:
                self.harness.add(self._reservation(unit))
        self._settle(2)
        for step, given in self.script.steps:
            getattr(self, step)(given)
        self._settle(ROUNDS)
        self.harness.scheduler.cache.validate()
        self.harness.scheduler.queue.validate()
        pods = self.harness.api.store(PODS)
        found = self.harness.api.store(RESERVATIONS)
        result = Result(
            {key: pod.spec.node_name for key, pod in pods.items()},
            {key: one.status.phase for key, one in found.items()},
            {key: self.harness.outcome(key).message for key in pods},
        )
        self.harness.close()
        return result

    def _settle(self, rounds: int) -> None:
        for _ in range(rounds):
            self.harness.schedule_all()
            self.report()
            # Longer than the period after which a cache of topologies is compared with reports.
            self.harness.advance(6)
            self.harness.schedule_all()
            self.harness.advance(24)

    # ---- steps ---------------------------------------------------------------------------------

    def pod(self, given: tuple[Unit, str]) -> None:
        unit, name = given
        self.harness.add(unit.pod(name))
        self.harness.schedule_all()

    def replace(self, given: tuple[Unit, int]) -> None:
        unit, number = given
        if f"{unit.name}/p{number}" in self.harness.api.store(PODS):
            self.harness.remove("Pod", f"p{number}", namespace=unit.name)
            self.pod((unit, f"p{number}-again"))

    def wait(self, seconds: int) -> None:
        self.harness.advance(seconds)
        self.report()
        self.harness.schedule_all()

    def reload(self, given: None) -> None:
        assembly, in_force = self.harness._cluster.assembly, self.harness.scheduler.profile_set

        async def reload() -> None:
            made = assembly.prepare(in_force.configuration, in_force.registry)
            self.harness.scheduler.between_cycles(lambda: assembly.use(made))

        self.harness._do(reload())

    def report(self) -> None:
        """Publish what agents know of the zones of nodes: one for each pod that a node holds."""
        pods = list(self.harness.api.store(PODS).values())
        for unit in self.script.units:
            for name in unit.node_names() if NUMA in unit.features else ():
                here = [pod.metadata for pod in pods if pod.spec.node_name == name]
                self.harness.add(_topology(unit, name, [(m.namespace, m.name) for m in here]))

    # ---- objects -------------------------------------------------------------------------------

    def _reservation(self, unit: Unit) -> dict:
        meta = {"labels": unit.labels, "annotations": unit.annotations, "namespace": unit.name}
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": unit.name, "uid": f"uid-of-{unit.name}"},
            "spec": {
                "template": {"metadata": meta, "spec": unit.spec(unit.reserved)},
                "owners": [{"labelSelector": {"matchLabels": {"unit": unit.name}}}],
                "allocateOnce": unit.once,
            },
            "status": {},
        }


def _default_queue(units: Iterable[Unit]) -> dict:
    """Return the queue of pods that name none: it deserves all that they may request.

    All queues together deserve what the nodes have. So each keeps what it deserves, whatever the
    others ask for: also for a reservation that waits, and for the pods that will run in it.
    """
    deserved = Counter[str]()
    for unit in units:
        if "CapacityScheduling" in unit.features:
            continue
        for name, amount in unit.requested(unit.size).items():
            deserved[name] += int(amount.removesuffix("Gi")) * (2**30 if "Gi" in amount else 1)
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "default"},
        "spec": {"deserved": {name: str(amount) for name, amount in deserved.items()}},
    }


def _topology(unit: Unit, name: str, pods: list[tuple[str, str]]) -> dict:
    attributes = {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "nodeTopologyPodsFingerprint": fingerprint(pods),
    }
    cpus = f"{unit.cpus * 500}m" if unit.refused_by == NUMA else str(unit.cpus)
    zones = []
    for number in range(unit.per_node):
        taken = number < len(pods)
        amounts = (
            ("cpu", cpus, "0" if taken else cpus),
            ("memory", "1Gi", "0" if taken else "1Gi"),
        )
        resources = [
            {"name": name, "capacity": most, "allocatable": most, "available": left}
            for name, most, left in amounts
        ]
        zones.append({"name": f"node-{number}", "type": "Node", "resources": resources})
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
        "zones": zones,
    }
