"""Two tenants borrow and are reclaimed, in random scripts: guarantees always hold.

``PROREUS_QUOTA_SCRIPTS`` is how many scripts are drawn for each kind of quota.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.objects import PODS
from proreus.testing import Harness, make_node, make_pod
from unit.addons.quotas import elastic_quota, kai_queue, volcano_queue

SCRIPTS = int(os.environ.get("PROREUS_QUOTA_SCRIPTS", "25"))
TENANTS = ("a", "b")


def configuration(args: dict) -> dict:
    multi_point = {
        "disabled": [{"name": "DefaultPreemption"}],
        "enabled": [{"name": "CapacityScheduling"}],
    }
    profile = {
        "plugins": {"multiPoint": multi_point},
        "pluginConfig": [{"name": "CapacityScheduling", "args": args}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


@dataclass
class Script:
    """A cluster, what its tenants are guaranteed, and which of their pods want to run.

    A pod that is evicted is created anew, as its controller would.
    """

    random: Random
    make_quota: Callable[[str, int], dict]
    args: dict
    sizes: tuple[int, ...]
    nodes: str
    wanted: dict[str, tuple[str, int]] = field(default_factory=dict)
    made: int = 0
    deleted: int = 0
    reclaimed: int = 0

    def __post_init__(self) -> None:
        capacity = self.random.randint(4, 12)
        first = self.random.randint(0, capacity)
        self.least = {"a": first, "b": capacity - first}
        self.priority = {tenant: self.random.randint(0, 9) for tenant in TENANTS}
        # On roomy nodes only quotas decide; on small ones a guarantee must not be cut in pieces.
        sizes = {"one": [capacity], "small": [1] * capacity, "roomy": [capacity] * 4}[self.nodes]
        nodes = [make_node(f"n{number}", str(cpus)) for number, cpus in enumerate(sizes)]
        quotas = [self.make_quota(tenant, least) for tenant, least in self.least.items()]
        self.cluster = Harness([CapacityScheduling], nodes, quotas, config=configuration(self.args))

    def run(self) -> None:
        for _ in range(self.random.randint(5, 20)):
            if self.wanted and self.random.random() < 0.35:
                name = self.random.choice(sorted(self.wanted))
                tenant, _ = self.wanted.pop(name)
                self.cluster.remove("Pod", name, namespace=tenant)
            else:
                tenant = self.random.choice(TENANTS)
                for _ in range(self.random.randint(1, 5)):
                    self.create(tenant, self.random.choice(self.sizes))
            self.settle()

    def create(self, tenant: str, cpus: int) -> None:
        self.made += 1
        name = f"p{self.made}"
        self.wanted[name] = tenant, cpus
        self.cluster.add(
            make_pod(
                name,
                str(cpus),
                namespace=tenant,
                priority=self.priority[tenant],
                metadata={
                    "labels": {"kai.scheduler/queue": tenant},
                    "annotations": {"scheduling.volcano.sh/queue-name": tenant},
                },
            )
        )

    def settle(self) -> None:
        """Let time pass until nothing moves any more."""
        quiet = 0
        for _ in range(200):
            before = {key: pod.spec.node_name for key, pod in self.pods().items()}
            self.cluster.schedule_all()
            self.replace_evicted()
            self.cluster.advance(15)
            after = {key: pod.spec.node_name for key, pod in self.pods().items()}
            quiet = quiet + 1 if before == after else 0
            if quiet == 3:
                break
        else:
            raise AssertionError("pods are evicted again and again")
        self.check_that_guarantees_are_reached()

    def replace_evicted(self) -> None:
        deleted = self.cluster.api.deleted[self.deleted :]
        self.deleted += len(deleted)
        # Their nodes are known no more: all of them had one until now.
        evicted = [name for key in deleted if (name := key.partition("/")[2]) in self.wanted]
        found = [self.wanted.pop(name) for name in evicted]
        for number, (tenant, _) in enumerate(found):
            self.reclaimed += 1
            had = self.used(tenant) + sum(cpus for other, cpus in found[number:] if other == tenant)
            assert had > self.least[tenant], "evicted within the guarantee"
        for tenant, cpus in found:
            self.create(tenant, cpus)

    def check_that_guarantees_are_reached(self) -> None:
        for name, (tenant, cpus) in self.wanted.items():
            if not self.pods()[f"{tenant}/{name}"].spec.node_name:
                assert self.used(tenant) + cpus > self.least[tenant], self.cluster.outcome(
                    f"{tenant}/{name}"
                )

    def used(self, tenant: str) -> int:
        return sum(
            cpus
            for name, (owner, cpus) in self.wanted.items()
            if owner == tenant and self.pods()[f"{tenant}/{name}"].spec.node_name
        )

    def pods(self) -> dict:
        return self.cluster.api.store(PODS)


KINDS = {
    "ElasticQuota": (elastic_quota, {}),
    "tree of ElasticQuotas": (elastic_quota, {"queues": {"source": "ElasticQuota"}}),
    "Volcano": (volcano_queue, {"queues": {"source": "Volcano"}}),
    "KAI": (kai_queue, {"queues": {"source": "KAI"}}),
}


CASES = [
    *((kind, (1, 2, 3), "one") for kind in KINDS),
    *((kind, (1,), "small") for kind in KINDS),
    ("ElasticQuota", (1, 2, 3), "roomy"),
]


@pytest.mark.parametrize(("kind", "sizes", "nodes"), CASES)
def test_no_tenant_is_below_its_guarantee_while_it_asks(
    kind: str, sizes: tuple[int, ...], nodes: str
) -> None:
    make_quota, args = KINDS[kind]
    reclaimed = 0
    for seed in range(SCRIPTS):
        script = Script(Random(seed), make_quota, args, sizes, nodes)
        try:
            script.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        reclaimed += script.reclaimed
        script.cluster.close()
    assert reclaimed, "no script took anything back"
