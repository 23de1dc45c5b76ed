"""What an event costs grows with the objects that it concerns, whichever add-on is told of it.

Each add-on is told of pods that use what it reads: pods that run, come and go; pods that wait while
others come; pods that are scheduled. Four times as many pods are four times the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proreus.framework import QueueSortPlugin
from proreus.plugins.default_preemption import DefaultPreemption
from proreus.process.loading.load import add_ons
from proreus.testing import Harness, make_node, make_pod
from unit.addons.pair_scripts import Unit, class_of
from unit.growth import MOST_FOR_FOUR_TIMES, steps

FEW = 10
FOR_GANGS = ("GroupTopology", "GangPreemption")
SELECTOR = {"labelSelector": {"matchLabels": {"unit": "u"}}, "topologyKey": "rack"}
CONSTRAINTS = {
    "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [SELECTOR]}},
    "topologySpreadConstraints": [
        {**SELECTOR, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
        {**SELECTOR, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
    ],
    "tolerations": [{"key": "x", "operator": "Exists"}],
}
ARGS: dict[str, dict] = {
    "Coscheduling": {"mode": "plan"},
    "GroupTopology": {"levels": ["rack"]},
    "NodeMetadata": {"metadataKey": "unit", "metadataType": "Number"},
}


def names_with(name: str) -> list[str]:
    """Return an add-on, and Coscheduling where it is for gangs; none for ""."""
    return ["Coscheduling", name] if name == "GroupTopology" else [name] if name else []


def configuration(name: str) -> dict:
    """Return a configuration with an add-on; "": without any."""
    names = names_with(name)
    points: dict[str, Any] = {"multiPoint": {"enabled": [{"name": one} for one in names]}}
    sorts = [one for one in names if issubclass(class_of(one), QueueSortPlugin)]
    if sorts:
        points["queueSort"] = {"enabled": [{"name": sorts[0]}], "disabled": [{"name": "*"}]}
    if any(issubclass(class_of(one), DefaultPreemption) for one in names):
        points["multiPoint"]["disabled"] = [{"name": "DefaultPreemption"}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": points,
                "pluginConfig": [{"name": one, "args": ARGS.get(one, {})} for one in names],
            }
        ],
    }


class Tenant:
    """A cluster with an add-on, and ``number`` pods of a tenant that use it, all on one node.

    Those of DeviceShare are on as many nodes: no node has devices without end.
    """

    def __init__(self, name: str, number: int) -> None:
        features: tuple[str, ...] = (name,) if name else ()
        if name in FOR_GANGS:
            features = ("Coscheduling", name)
        nodes = number if name == "DeviceShare" else 1
        self.unit = Unit("u", nodes, number // nodes, 1, features, "", False, 1, False)
        self.nodes = [self.unit.node(one) for one in self.unit.node_names()]
        labels = {"unit": "u", "rack": "u"}
        full = make_node("full", "0", labels=labels)
        classes = [class_of(one) for one in names_with(name)]
        self.cluster = Harness(classes, [full], config=configuration(name))
        self.cluster.add(*self.unit.objects)
        self.pods = [self.unit.pod(f"p{one}") for one in range(number)]
        if not name:
            # What Kubernetes' own plugins read.
            self.pods = [{**pod, "spec": {**pod["spec"], **CONSTRAINTS}} for pod in self.pods]

    def come(self) -> None:
        for pod in self.pods:
            self.cluster.add(pod)

    def go(self) -> None:
        for pod in self.pods:
            self.cluster.remove("Pod", pod["metadata"]["name"], namespace="u")

    def are_relabelled(self) -> None:
        for pod in self.pods:
            meta = {**pod["metadata"], "labels": {**pod["metadata"]["labels"], "further": "one"}}
            self.cluster.add({**pod, "metadata": meta})

    def are_scheduled(self) -> None:
        async def schedule() -> None:
            while await self.cluster._cluster.schedule_next() is not None:
                pass

        self.cluster._do(schedule())

    def run(self) -> None:
        self.cluster.add(*self.nodes)
        self.pods = [{**pod, "spec": {**pod["spec"], "nodeName": "u-0"}} for pod in self.pods]

    def see_others(self) -> None:
        """Those that wait see a pod come and go, a node that is of no use, and their objects."""
        self.cluster.add(make_node("other", "0"))
        self.cluster.add(make_pod("other", node_name="other"))
        self.cluster.remove("Pod", "other")
        self.cluster.add(*self.unit.objects)


def work_of(name: str, number: int) -> dict[str, int]:
    """Return how much work each part of a tenant's day is."""
    found: dict[str, int] = {}

    def count(what: str, work: Callable[[], None]) -> None:
        found[what] = steps(work)

    waiting = Tenant(name, number)
    count("wait", waiting.come)
    count("are rejected", waiting.are_scheduled)
    count("see others", waiting.see_others)
    count("are relabelled while they wait", waiting.are_relabelled)
    count("go while they wait", waiting.go)
    scheduled = Tenant(name, number)
    scheduled.cluster.add(*scheduled.nodes)
    scheduled.come()
    count("are scheduled", scheduled.are_scheduled)
    running = Tenant(name, number)
    running.run()
    count("run", running.come)
    count("are relabelled while they run", running.are_relabelled)
    count("go", running.go)
    return found


@pytest.mark.parametrize("name", ["", *sorted(add_ons())])
def test_four_times_as_many_pods_are_no_more_than_six_times_the_work(name: str) -> None:
    # What is imported, or made once, is no work of these pods.
    work_of(name, 2)
    few, many = work_of(name, FEW), work_of(name, 4 * FEW)
    growth = {what: round(many[what] / few[what], 1) for what in few}
    assert max(growth.values()) < MOST_FOR_FOUR_TIMES, growth
