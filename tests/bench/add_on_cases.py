"""The add-ons that ``bench.add_ons`` measures, and the pods and clusters that they are for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proreus.addons.business_weight import BusinessWeight
from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.addons.colocation import Colocation
from proreus.addons.coscheduling import Coscheduling
from proreus.addons.delay_scheduling import DelayScheduling
from proreus.addons.device_share import DeviceShare
from proreus.addons.gang_preemption import GangPreemption
from proreus.addons.group_topology import GroupTopology
from proreus.addons.job_barrier import JobBarrier
from proreus.addons.load_aware_scheduling import LoadAwareScheduling
from proreus.addons.network_aware.network_overhead import NetworkOverhead
from proreus.addons.network_aware.objects import APP_GROUP_LABEL, WORKLOAD_LABEL
from proreus.addons.network_aware.topological_sort import TopologicalSort
from proreus.addons.node_metadata import NodeMetadata
from proreus.addons.node_metrics.metrics import (
    Metric,
    MetricsData,
    NodeMetricList,
    WatcherMetrics,
    Window,
)
from proreus.addons.node_metrics.reader import NodeMetricsReader
from proreus.addons.node_resource_topology_match import NodeResourceTopologyMatch
from proreus.addons.node_resources_allocatable import NodeResourcesAllocatable
from proreus.addons.pod_state import PodState
from proreus.addons.preemption_toleration import PreemptionToleration
from proreus.addons.qos_sort import QOSSort
from proreus.addons.reservation import Reservation
from proreus.addons.sysched import SySched
from proreus.addons.trimaran.load_variation_risk_balancing import LoadVariationRiskBalancing
from proreus.addons.trimaran.low_risk_over_commitment import LowRiskOverCommitment
from proreus.addons.trimaran.peaks import Peaks
from proreus.addons.trimaran.target_load_packing import TargetLoadPacking
from proreus.framework import Handle, Plugin, PodInfo
from proreus.objects import LABEL_ZONE, NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.testing import make_node, make_pod

MakePod = Callable[[int, Mapping[str, Any]], PodInfo]


def plain(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod that asks for nothing special."""
    return make_pod(f"pod-{number}", "100m", "500Mi", **more)


def with_preference(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod that prefers three nodes with room."""
    names = ",".join(f"node-{number * 7 % 5000 + place}" for place in range(3))
    metadata = {"annotations": {"proreus.dev/prefer-nodes": names}}
    return plain(number, {**more, "metadata": metadata})


@dataclass(frozen=True)
class Case:
    """An add-on, and pods that it has to do with; ``prepare`` fills its cluster."""

    plugin: type[Plugin]
    pod: MakePod = plain
    args: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[OfflineCluster], None] = lambda cluster: None


def elastic(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a member of one of ten jobs that need one."""
    return plain(number, {**more, "labels": {"proreus.dev/job": f"job-{number % 10}"}})


def of_business(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod of one of two lines of business."""
    return plain(number, {**more, "labels": {"proreus.dev/business": "ab"[number % 2]}})


def half_a_gpu(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod that takes half a GPU, in KAI's words."""
    return plain(number, {**more, "metadata": {"annotations": {"gpu-fraction": "0.5"}}})


def with_gpus(cluster: OfflineCluster) -> None:
    """Give each tenth node eight GPUs."""
    for number in range(0, len(cluster.scheduler.cache.table), 10):
        gpus = {"nvidia.com/gpu": 8}
        cluster.api.put(NODES, make_node(f"node-{number}", "32", "256Gi", resources=gpus))


def of_app_group(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod that depends on the placed ones of ``with_app_group``."""
    labels = {APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: "web"}
    return plain(number, {**more, "labels": labels})


def with_app_group(cluster: OfflineCluster) -> None:
    """Place a pod of an AppGroup on every other node; there are nine zones, at cost 5."""
    on = [{"workload": {"selector": "db"}, "maxNetworkCost": 6}]
    workloads = [{"workload": {"selector": "web"}, "dependencies": on}]
    zones = [f"zone-{number}" for number in range(9)]
    to_all = [{"destination": zone, "networkCost": 5} for zone in zones]
    origins = [{"origin": zone, "costList": to_all} for zone in zones]
    weights = {
        "name": "UserDefined",
        "topologyList": [{"topologyKey": LABEL_ZONE, "originList": origins}],
    }
    for version, kind, name, spec in (
        ("appgroup.diktyo.x-k8s.io/v1alpha1", "AppGroup", "shop", {"workloads": workloads}),
        (
            "networktopology.diktyo.x-k8s.io/v1alpha1",
            "NetworkTopology",
            "nt-default",
            {"weights": [weights]},
        ),
    ):
        meta = {"name": name, "namespace": "default"}
        cluster.api.add({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec})
    labels = {APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: "db"}
    for number in range(0, len(cluster.scheduler.cache.table), 2):
        pod = make_pod(f"db-{number}", "100m", labels=labels, node_name=f"node-{number}")
        cluster.api.put(PODS, pod.pod)


def of_quota(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod of one of fifty namespaces with quotas."""
    return plain(number, {**more, "namespace": f"team-{number % 50}"})


def with_quotas(cluster: OfflineCluster) -> None:
    """Give fifty namespaces a quota each."""
    for number in range(50):
        cluster.api.add(
            {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"name": "quota", "namespace": f"team-{number}"},
                "spec": {"min": {"cpu": 100, "memory": "500Gi"}, "max": {"cpu": 1000}},
            }
        )


def offline(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod of batch resources."""
    return make_pod(f"pod-{number}", resources={"kubernetes.io/batch-cpu": 100}, **more)


def with_batch_resources(cluster: OfflineCluster) -> None:
    """Give each node 16 CPUs of batch resources."""
    for number in range(len(cluster.scheduler.cache.table)):
        batch = {"kubernetes.io/batch-cpu": 16000}
        cluster.api.put(NODES, make_node(f"node-{number}", "32", "256Gi", resources=batch))


def with_reservations(cluster: OfflineCluster) -> None:
    """Reserve room on a hundred nodes, for owners that do not come."""
    container = {"name": "c", "resources": {"requests": {"cpu": "4"}}}
    for number in range(100):
        cluster.api.add(
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Reservation",
                "metadata": {"name": f"r-{number}", "uid": f"r-{number}"},
                "spec": {
                    "template": {"spec": {"containers": [container]}},
                    "owners": [{"labelSelector": {"matchLabels": {"app": f"app-{number}"}}}],
                },
                "status": {"phase": "Available", "nodeName": f"node-{number}"},
            }
        )


def with_terminating_pods(cluster: OfflineCluster) -> None:
    """Put ten pods on each node, of which one is terminating on each tenth node."""
    for number in range(10 * len(cluster.scheduler.cache.table)):
        stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if number % 100 == 0 else {}
        pod = plain(number, {"metadata": stamp, "node_name": f"node-{number // 10}"})
        cluster.api.put(PODS, pod.pod)


def with_profiles(cluster: OfflineCluster) -> None:
    """Put two pods on each node, each with one of nine profiles of 60 calls."""
    for number in range(9):
        names = [f"call-{(17 * number + call) % 200}" for call in range(60)]
        cluster.api.add(
            {
                "apiVersion": "security-profiles-operator.x-k8s.io/v1beta1",
                "kind": "SeccompProfile",
                "metadata": {"name": f"p{number}", "namespace": "default"},
                "spec": {"syscalls": [{"action": "SCMP_ACT_ALLOW", "names": names}]},
            }
        )
    for number in range(2 * len(cluster.scheduler.cache.table)):
        cluster.api.add(secured_pod(f"running-{number}", number % 9, f"node-{number // 2}"))
    cluster.api.add(secured_pod(f"pod-{len(cluster.scheduler.cache.table)}", 4, ""))


def secured_pod(name: str, profile: int, node_name: str) -> dict[str, Any]:
    """Return a pod with a profile, running if it has a node."""
    path = f"operator/default/p{profile}.json"
    reference = {"type": "Localhost", "localhostProfile": path}
    spec = {
        "nodeName": node_name,
        "containers": [{"name": "c"}],
        "securityContext": {"seccompProfile": reference},
    }
    meta = {"name": name, "namespace": "default", "uid": name}
    status = {"phase": "Running"} if node_name else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def with_topologies(cluster: OfflineCluster) -> None:
    """Give each node two zones with 16 CPUs, of which some are taken."""
    for number in range(len(cluster.scheduler.cache.table)):
        zones = [
            {
                "name": f"node-{place}",
                "type": "Node",
                "resources": [
                    {"name": "cpu", "capacity": "16", "available": str(16 - number % (9 + place))},
                    {"name": "memory", "capacity": "128Gi", "available": "100Gi"},
                ],
            }
            for place in range(2)
        ]
        cluster.api.add(
            {
                "apiVersion": "topology.node.k8s.io/v1alpha2",
                "kind": "NodeResourceTopology",
                "metadata": {"name": f"node-{number}"},
                "topologyPolicies": ["SingleNUMANodePodLevel"],
                "zones": zones,
            }
        )


def aligned(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a small pod whose CPUs a kubelet aligns."""
    amounts = {"cpu": "1", "memory": "500Mi"}
    containers = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
    return plain(number, {**more, "spec": {"containers": containers}})


def guaranteed(number: int, more: Mapping[str, Any]) -> PodInfo:
    """Return a pod whose CPUs a kubelet aligns."""
    amounts = {"cpu": "10", "memory": "1Gi"}
    containers = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
    return plain(number, {**more, "spec": {"containers": containers}})


def measured(plugin: type[NodeMetricsReader]) -> type[Plugin]:
    """Return the plugin, with metrics of all nodes from the start."""

    class Measured(plugin):  # type: ignore[valid-type, misc]
        name = plugin.name

        def __init__(self, args: Any, handle: Handle) -> None:
            super().__init__(args, handle)
            nodes = {}
            for number in range(20_000):
                values = (
                    Metric("CPU", "AVG", 10.0 + number % 71),
                    Metric("CPU", "STD", 3.0 + number % 13),
                    Metric("Memory", "AVG", 20.0 + number % 53),
                    Metric("Memory", "STD", 1.0 + number % 7),
                )
                nodes[f"node-{number}"] = NodeMetricList(values)
            self.use(WatcherMetrics(Window("15m", 0, 1e12), MetricsData(nodes)))

    return Measured


POWER = {"nodePowerModel": {"*": {"k0": 368.2, "k1": -52.5, "k2": -0.05}}}


def with_running_pods(cluster: OfflineCluster) -> None:
    """Put ten pods on each node."""
    for number in range(10 * len(cluster.scheduler.cache.table)):
        cluster.api.put(PODS, plain(number, {"node_name": f"node-{number // 10}"}).pod)


CASES = {
    "NodeResourcesAllocatable": Case(NodeResourcesAllocatable),
    "PodState": Case(PodState),
    "NodeMetadata": Case(NodeMetadata, args={"metadataKey": "example.com/pool"}),
    "QOSSort": Case(QOSSort),
    "PreemptionToleration": Case(PreemptionToleration),
    "CapacityScheduling, no quota": Case(CapacityScheduling, prepare=with_quotas),
    "CapacityScheduling, 50 quotas": Case(CapacityScheduling, of_quota, prepare=with_quotas),
    "Coscheduling, no group": Case(Coscheduling),
    "GangPreemption, no group": Case(GangPreemption),
    "GroupTopology, no group": Case(GroupTopology),
    "NodeResourceTopologyMatch, not aligned": Case(
        NodeResourceTopologyMatch, prepare=with_topologies
    ),
    "NodeResourceTopologyMatch, Guaranteed": Case(
        NodeResourceTopologyMatch, aligned, prepare=with_topologies
    ),
    "TargetLoadPacking": Case(measured(TargetLoadPacking)),
    "LoadVariationRiskBalancing": Case(measured(LoadVariationRiskBalancing)),
    "LowRiskOverCommitment": Case(measured(LowRiskOverCommitment)),
    "Peaks": Case(measured(Peaks), args=POWER),
    "LoadAwareScheduling": Case(measured(LoadAwareScheduling)),
    "LoadAwareScheduling, thresholds": Case(
        measured(LoadAwareScheduling), args={"usageThresholds": {"cpu": 65, "memory": 95}}
    ),
    "Colocation, online": Case(Colocation, prepare=with_batch_resources),
    "Colocation, offline": Case(Colocation, offline, prepare=with_batch_resources),
    "TopologicalSort": Case(TopologicalSort),
    "Reservation, none": Case(Reservation),
    "Reservation, 100 of others": Case(Reservation, prepare=with_reservations),
    "SySched": Case(SySched, prepare=with_profiles),
    "NetworkOverhead, no group": Case(NetworkOverhead, prepare=with_app_group),
    "NetworkOverhead, with dependencies": Case(
        NetworkOverhead, of_app_group, prepare=with_app_group
    ),
    "JobBarrier, no job": Case(JobBarrier),
    "JobBarrier, elastic members": Case(JobBarrier, elastic),
    "BusinessWeight": Case(
        BusinessWeight,
        of_business,
        {
            "nodeLabel": "example.com/pool",
            "weights": {"a": {"pool-1": 90}, "b": {"pool-2": 100, "pool-3": 20}},
        },
    ),
    "DeviceShare, no device": Case(DeviceShare, prepare=with_gpus),
    "DeviceShare, half a GPU": Case(DeviceShare, half_a_gpu, prepare=with_gpus),
    "DelayScheduling, no preference": Case(DelayScheduling),
    "DelayScheduling, three nodes": Case(DelayScheduling, with_preference),
}


ALL_NODES = {
    "LowRiskOverCommitment": Case(measured(LowRiskOverCommitment), prepare=with_running_pods),
    "Peaks": Case(measured(Peaks), args=POWER),
    "PodState": Case(PodState, prepare=with_terminating_pods),
    "SySched": Case(SySched, prepare=with_profiles),
    "NodeResourceTopologyMatch": Case(
        NodeResourceTopologyMatch, guaranteed, prepare=with_topologies
    ),
}
"""Add-ons whose first pod of a kind is measured over all nodes."""
