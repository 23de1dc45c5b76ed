"""A scheduler with pod groups over an API in memory, as of Kubernetes 1.37 by default."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37, KubernetesVersion
from proreus.config.load import default_configuration
from proreus.engine.runtime.registry import Registry
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod, condition_of
from proreus.objects.scheduling import (
    COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED,
    COMPOSITE_POD_GROUPS,
    POD_GROUP_INITIALLY_SCHEDULED,
    POD_GROUPS,
    Condition,
)
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing import make_node, make_pod

ZONE = "topology.kubernetes.io/zone"
IN_ONE_ZONE = {"schedulingConstraints": {"topology": [{"key": ZONE}]}}
PROFILE = "default-scheduler"


class Cluster(OfflineCluster):
    """The default profile with pod groups, and with plugins that come last."""

    def __init__(
        self,
        *gates: str,
        plugins: tuple[Any, ...] = (),
        without: tuple[str, ...] = (),
        version: KubernetesVersion = V1_37,
    ):
        registry = Registry([*IN_TREE_PLUGINS, *plugins])
        parsed = FeatureGates.from_list(["GenericWorkload=true", *gates], version)
        config = default_configuration(registry, parsed)
        [profile] = config.profiles
        enabled = [ref for ref in profile.plugins.multi_point.enabled if ref.name not in without]
        enabled += [type(enabled[0])(name=plugin.name) for plugin in plugins]
        multi_point = profile.plugins.multi_point.model_copy(update={"enabled": tuple(enabled)})
        plugged = profile.plugins.model_copy(update={"multi_point": multi_point})
        profiles = (profile.model_copy(update={"plugins": plugged}),)
        super().__init__(config.model_copy(update={"profiles": profiles}), registry, parsed)

    # ---- objects ---------------------------------------------------------------------------------

    def nodes(self, zone: str = "", **cpus: str) -> None:
        labels = {ZONE: zone} if zone else {}
        for name, cpu in cpus.items():
            self.api.put(NODES, make_node(name, cpu, labels=labels))

    def group(self, name: str = "g", min_count: int | None = None, **spec: Any) -> None:
        policy = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
        meta = {"name": name, "namespace": "default", "generation": 1}
        spec = {"schedulingPolicy": policy, **spec}
        self.api.add({"kind": "PodGroup", "metadata": meta, "spec": spec})

    def composite(self, name: str, min_groups: int | None = None, **spec: Any) -> None:
        gang = {"gang": {"minGroupCount": min_groups}}
        policy: Any = {"basic": {}} if min_groups is None else gang
        meta = {"name": name, "namespace": "default"}
        spec = {"schedulingPolicy": policy, **spec}
        self.api.add({"kind": "CompositePodGroup", "metadata": meta, "spec": spec})

    def pods(self, *names: str, group: str = "g", cpu: str = "1", **fields: Any) -> None:
        spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
        spec |= fields.pop("spec", {})
        for name in names:
            self.api.put(PODS, make_pod(name, cpu, spec=spec, **fields).pod)

    # ---- what can be seen ------------------------------------------------------------------------

    def pod(self, name: str) -> Pod:
        return self.api.store(PODS)[f"default/{name}"]

    def placed(self) -> dict[str, str]:
        """Node by pod, of those that have one."""
        pods = self.api.store(PODS).values()
        return {p.metadata.name: p.spec.node_name for p in pods if p.spec.node_name}

    def message(self, name: str) -> str:
        condition = condition_of(self.pod(name), "PodScheduled")
        return "" if condition is None else condition.message

    def condition(self, name: str = "g") -> Condition:
        condition = self.api.store(POD_GROUPS)[f"default/{name}"].condition(
            POD_GROUP_INITIALLY_SCHEDULED
        )
        assert condition is not None
        return condition

    def composite_condition(self, name: str) -> Condition | None:
        group = self.api.store(COMPOSITE_POD_GROUPS)[f"default/{name}"]
        return group.condition(COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED)

    def notes(self, reason: str = "FailedScheduling") -> dict[str, str]:
        """Last note of a reason, by pod."""
        return {
            key.partition("/")[2]: note for key, why, note in self.events.events if why == reason
        }

    def attempts(self) -> dict[str, float]:
        family = self.metrics.podgroup_schedule_attempts_total
        results = ("scheduled", "unschedulable", "waiting_on_preemption", "error")
        counts = {r: family.labels(r, PROFILE, "podgroup").value for r in results}
        return {result: count for result, count in counts.items() if count}

    def observed(self, family: Any, *labels: str) -> int:
        """How often a histogram was observed."""
        return sum((family.labels(*labels) if labels else family).counts)

    def columns(self) -> dict[str, list[int]]:
        """What the table says about each node's pods."""
        table = self.scheduler.cache.table
        size = slice(table.size)
        return {
            "pods": np.asarray(table.pod_count)[size].tolist(),
            "cpu": np.asarray(table.requested["cpu"])[size].tolist(),
            "memory": np.asarray(table.nonzero_requested["memory"])[size].tolist(),
            "ports": np.asarray(table.port_set)[size].tolist(),
        }

    async def cycle(self) -> None:
        """Make one attempt of the next group."""
        outcome = await self.schedule_next()
        assert outcome is not None, "no group is ready to be scheduled"
        self.validate()

    def validate(self) -> None:
        self.scheduler.cache.validate()
        self.scheduler.queue.validate()
        assert self.scheduler.queue.in_flight_count == 0


class Kit:
    """What the tests of this package build with."""

    Cluster = Cluster
    IN_ONE_ZONE = IN_ONE_ZONE
    PROFILE = PROFILE
    TOPOLOGY = "TopologyAwareWorkloadScheduling=true"
    COMPOSITE = ("TopologyAwareWorkloadScheduling=true", "CompositePodGroup=true")


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit
