"""A cluster whose pods wait for each other: ten pods, gangs, quotas, and preemption.

All that a new user asks the dashboard about is in it. It needs no control plane, so its pages are
the same in each run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.dry_run.service import DryRunService
from proreus.insight.explain import Explainer
from proreus.insight.page_sources import PageSources
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod
from proreus.offline.api import InMemoryApi
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.plugins import IN_TREE_PLUGINS
from unit.offline_objects import node

ZONE = "topology.kubernetes.io/zone"
_AT = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = "batch"
"""The profile with quotas."""


class SlowApi(InMemoryApi):
    """Leaves evicted pods terminating, as kubelets do for their grace period."""

    async def delete_pod(self, pod: Pod) -> None:
        """Mark a pod as being deleted."""
        live = self.store(PODS)[f"{pod.metadata.namespace}/{pod.metadata.name}"]
        meta = replace(live.metadata, deletion_timestamp=live.metadata.creation_timestamp or _AT)
        self.put(PODS, replace(live, metadata=meta))
        self.deleted.append(f"{meta.namespace}/{meta.name}")


def pod(name: str, cpu: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """Return a pod that requests cpu and a little memory."""
    requests = {"cpu": cpu, "memory": "512Mi"}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "app", "resources": {"requests": requests}}],
            **spec,
        },
    }


def group(name: str, min_count: int, namespace: str = "default") -> dict[str, Any]:
    """Return a PodGroup of the API."""
    return {
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
    }


def member(name: str, of: str, cpu: str, **spec: Any) -> dict[str, Any]:
    """Return a pod of a PodGroup."""
    return pod(name, cpu, schedulingGroup={"podGroupName": of}, **spec)


def quota(namespace: str, least: int, most: int) -> dict[str, Any]:
    """Return an ElasticQuota of a namespace."""
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": namespace, "namespace": namespace},
        "spec": {
            "min": {"cpu": least, "memory": f"{least}Gi"},
            "max": {"cpu": most, "memory": f"{most}Gi"},
        },
    }


def configuration() -> dict[str, Any]:
    """Return two profiles, one of which has quotas."""
    quotas = {
        "disabled": [{"name": "DefaultPreemption"}],
        "enabled": [{"name": "CapacityScheduling"}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "default-scheduler"},
            {"schedulerName": BATCH, "plugins": {"multiPoint": quotas}},
        ],
    }


class SharedCluster:
    """The cluster and the sources of its pages; needs a running event loop."""

    def __init__(self) -> None:
        gates = FeatureGates.from_list(["GenericWorkload=true"], V1_37)
        registry = Registry([*IN_TREE_PLUGINS, CapacityScheduling])
        loaded = load(configuration(), registry, gates)
        api = SlowApi()
        self.cluster = OfflineCluster(loaded, registry, gates, OfflineOptions(), api)
        scheduler, clock = self.cluster.scheduler, self.cluster.clock
        recorder = DecisionRecorder.of(scheduler, clock)
        pods = api.store(PODS)
        dry_runs = DryRunService(self.cluster.assembly)
        self.sources = PageSources(
            scheduler,
            Explainer(scheduler, recorder, pods, clock),
            pods,
            standby=str,
            synced=lambda: True,
            version="0.1.0",
            clock=clock,
            dry_runs=lambda: dry_runs,
        )

    def add(self, *objects: Any) -> None:
        """Create objects."""
        for one in objects:
            self.cluster.api.add(one)

    async def schedule(self, *objects: Any) -> None:
        """Create objects, and try all pods that are active."""
        self.add(*objects)
        while await self.cluster.schedule_next() is not None:
            pass
        await self.cluster.settle()

    async def fill(self) -> None:
        """Add everything that a new user asks about."""
        # Those that run. Twelve nodes of 8 CPUs.
        for number in range(12):
            self.add(node(f"node-{number:02}", "8", **{ZONE: f"zone-{number % 3}"}))
        self.add(quota("team-a", 8, 24), quota("team-b", 16, 24))
        await self.schedule(
            *(pod(f"train-{n}", "4", "team-a", schedulerName=BATCH) for n in range(5)),
            *(pod(f"serve-{n}", "2", "team-b", schedulerName=BATCH) for n in range(2)),
            *(pod(f"web-{n:02}", "2", priority=0) for n in range(20)),
        )
        self.cluster.advance(95)
        # Those that wait: ten pods for two reasons, a gang that is too large, one without all pods,
        # one without its PodGroup, pods of a team whose guarantee is lent, a pod with victims.
        await self.schedule(
            *(pod(f"database-{n}", "1", nodeSelector={"disk": "nvme"}) for n in range(5)),
            *(pod(f"report-{n}", "48") for n in range(5)),
            group("bert", 8),
            *(member(f"bert-{n}", "bert", "6") for n in range(8)),
            group("llama", 4),
            *(member(f"llama-{n}", "llama", "1") for n in range(2)),
            *(member(f"orphan-{n}", "missing", "1") for n in range(2)),
            *(
                pod(f"batch-{n}", "6", "team-b", schedulerName=BATCH, preemptionPolicy="Never")
                for n in range(2)
            ),
        )
        self.cluster.advance(33)
        await self.schedule(pod("urgent", "8", priority=1_000))
        self.cluster.advance(5)
