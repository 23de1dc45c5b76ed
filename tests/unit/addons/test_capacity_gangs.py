"""Gangs and quotas: a gang takes its guarantee back as one, and what is evicted are whole gangs.

``PROREUS_QUOTA_SCRIPTS`` is how many random scripts are drawn for each kind of quota.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.addons.coscheduling import Coscheduling
from proreus.addons.coscheduling.groups import POD_GROUP_LABEL
from proreus.objects import PODS
from proreus.testing import Harness, make_node, make_pod
from unit.addons.quotas import elastic_quota, kai_queue

SCRIPTS = int(os.environ.get("PROREUS_QUOTA_SCRIPTS", "25"))
TENANTS = ("a", "b")


def configuration(args: dict) -> dict:
    enabled = [{"name": "Coscheduling"}, {"name": "CapacityScheduling"}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {
                    "queueSort": {"disabled": [{"name": "*"}], "enabled": enabled[:1]},
                    "multiPoint": {
                        "disabled": [{"name": "DefaultPreemption"}],
                        "enabled": enabled,
                    },
                },
                "pluginConfig": [
                    {"name": "Coscheduling", "args": {"mode": "plan"}},
                    {"name": "CapacityScheduling", "args": args},
                ],
            }
        ],
    }


KINDS = {
    "ElasticQuota": (elastic_quota, {}),
    "KAI": (kai_queue, {"queues": {"source": "KAI"}}),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def harness(kind: str, cpus: tuple[int, ...] = (8,), **least: int) -> Harness:
    make_quota, args = KINDS[kind]
    quotas = [make_quota(tenant, amount) for tenant, amount in least.items()]
    nodes = [make_node(f"n{number}", str(amount)) for number, amount in enumerate(cpus)]
    plugins = [Coscheduling, CapacityScheduling]
    return Harness(plugins, nodes, quotas, config=configuration(args))


def pod(tenant: str, name: str, gang: str = "", priority: int = 0) -> Any:
    labels = {"kai.scheduler/queue": tenant} | ({POD_GROUP_LABEL: gang} if gang else {})
    return make_pod(name, "1", namespace=tenant, labels=labels, priority=priority)


def start(
    cluster: Harness, tenant: str, gang: str, needed: int, pods: int = 0, priority: int = 0
) -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": gang, "namespace": tenant},
        "spec": {"minMember": needed},
    }
    made = [pod(tenant, f"{gang}-{n}", gang, priority) for n in range(pods or needed)]
    cluster.add(group, *made)


def settle(cluster: Harness) -> None:
    for _ in range(4):
        cluster.schedule_all()
        cluster.advance(15)


def running(cluster: Harness) -> dict[str, int]:
    """Return how many pods of each gang, or pods by themselves, have a node."""
    found: dict[str, int] = {}
    for one in cluster.api.store(PODS).values():
        if one.spec.node_name:
            name = one.metadata.labels.get(POD_GROUP_LABEL, one.metadata.name)
            found[name] = found.get(name, 0) + 1
    return found


@kinds
def test_a_guarantee_is_taken_back_for_a_whole_gang_from_whole_gangs(kind: str) -> None:
    cluster = harness(kind, a=4, b=4)
    start(cluster, "a", "x", 3, priority=9)
    start(cluster, "a", "y", 3, priority=9)
    settle(cluster)
    assert running(cluster) == {"x": 3, "y": 3}
    start(cluster, "b", "z", 4)
    settle(cluster)
    left = running(cluster)
    assert left.pop("z") == 4
    assert sorted(left.values()) == [3]


@kinds
def test_surplus_is_given_back_first(kind: str) -> None:
    cluster = harness(kind, a=4, b=4)
    start(cluster, "a", "x", 2, pods=6)
    settle(cluster)
    assert running(cluster) == {"x": 6}
    start(cluster, "b", "z", 4)
    settle(cluster)
    assert running(cluster) == {"x": 4, "z": 4}


@kinds
def test_a_pod_by_itself_takes_back_a_whole_gang(kind: str) -> None:
    cluster = harness(kind, a=2, b=6)
    start(cluster, "a", "x", 2)
    start(cluster, "a", "y", 6, priority=-1)
    settle(cluster)
    assert running(cluster) == {"x": 2, "y": 6}
    cluster.add(pod("b", "single"))
    settle(cluster)
    assert running(cluster) == {"x": 2, "single": 1}


@kinds
def test_a_gang_beyond_its_guarantee_takes_nothing_from_others(kind: str) -> None:
    cluster = harness(kind, a=4, b=4)
    start(cluster, "a", "x", 4)
    start(cluster, "b", "z", 6, priority=100)
    settle(cluster)
    assert running(cluster) == {"x": 4}


@kinds
def test_a_gang_preempts_less_important_gangs_of_its_own(kind: str) -> None:
    cluster = harness(kind, a=8)
    start(cluster, "a", "x", 4)
    start(cluster, "a", "y", 4, priority=5)
    settle(cluster)
    start(cluster, "a", "z", 3, priority=9)
    settle(cluster)
    assert running(cluster) == {"y": 4, "z": 3}


def test_a_guarantee_is_taken_back_from_several_nodes_at_once() -> None:
    cluster = harness("ElasticQuota", (2, 2, 2, 2), a=4, b=4)
    for number in range(4):
        start(cluster, "a", f"x{number}", 2)
    settle(cluster)
    assert sum(running(cluster).values()) == 8
    start(cluster, "b", "z", 4)
    settle(cluster)
    left = running(cluster)
    assert left.pop("z") == 4
    assert list(left.values()) == [2, 2]


@dataclass
class Script:
    """Tenants that start and end gangs; one that is evicted is created anew by its controller."""

    random: Random
    kind: str
    wanted: dict[str, tuple[str, int]] = field(default_factory=dict)
    made: int = 0
    deleted: int = 0
    reclaimed: int = 0

    def __post_init__(self) -> None:
        capacity = self.random.randint(4, 10)
        first = self.random.randint(0, capacity)
        self.least = {"a": first, "b": capacity - first}
        self.priority = {tenant: self.random.randint(0, 9) for tenant in TENANTS}
        self.cluster = harness(self.kind, (capacity,), **self.least)

    def run(self) -> None:
        for _ in range(self.random.randint(4, 10)):
            if self.wanted and self.random.random() < 0.35:
                name = self.random.choice(sorted(self.wanted))
                tenant, size = self.wanted.pop(name)
                for number in range(size):
                    self.cluster.remove("Pod", f"{name}-{number}", namespace=tenant)
                self.cluster.remove("PodGroup", name, namespace=tenant)
            else:
                tenant = self.random.choice(TENANTS)
                for _ in range(self.random.randint(1, 3)):
                    self.create(tenant, self.random.randint(1, 3))
            self.settle()

    def create(self, tenant: str, size: int) -> None:
        self.made += 1
        name = f"g{self.made}"
        self.wanted[name] = tenant, size
        start(self.cluster, tenant, name, size, priority=self.priority[tenant])

    def settle(self) -> None:
        quiet = 0
        for _ in range(100):
            before = running(self.cluster)
            self.cluster.schedule_all()
            self.replace_evicted()
            self.cluster.advance(15)
            quiet = quiet + 1 if before == running(self.cluster) else 0
            if quiet == 3:
                break
        else:
            raise AssertionError("gangs are evicted again and again")
        for name, count in running(self.cluster).items():
            assert count == self.wanted[name][1], "a part of a gang runs"
        for name, (tenant, size) in self.wanted.items():
            if name not in running(self.cluster):
                assert self.used(tenant) + size > self.least[tenant], "a guarantee is not reached"

    def replace_evicted(self) -> None:
        deleted = self.cluster.api.deleted[self.deleted :]
        self.deleted += len(deleted)
        gone = [key.partition("/")[2].partition("-")[0] for key in deleted]
        evicted = [name for name in dict.fromkeys(gone) if name in self.wanted]
        found = [self.wanted.pop(name) for name in evicted]
        for name, (tenant, size) in zip(evicted, found, strict=True):
            self.reclaimed += 1
            assert gone.count(name) == size, "a part of a gang was evicted"
            self.cluster.remove("PodGroup", name, namespace=tenant)
        for number, (tenant, _) in enumerate(found):
            had = self.used(tenant) + sum(size for other, size in found[number:] if other == tenant)
            assert had > self.least[tenant], "evicted within the guarantee"
        for tenant, size in found:
            self.create(tenant, size)

    def used(self, tenant: str) -> int:
        counts = running(self.cluster)
        return sum(
            counts.get(name, 0) for name, (owner, _) in self.wanted.items() if owner == tenant
        )


@kinds
def test_guarantees_hold_for_gangs_and_no_gang_is_broken(kind: str) -> None:
    reclaimed = 0
    for seed in range(SCRIPTS):
        script = Script(Random(seed), kind)
        try:
            script.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        reclaimed += script.reclaimed
        script.cluster.close()
    assert reclaimed, "no script took anything back"
