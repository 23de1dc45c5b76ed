"""What add-ons cost a pod: scheduling cycles with and without each, in microseconds.

    PYTHONPATH=tests python -m bench.add_ons [--nodes N] [--pods N] [NAME …]

Each case has two clusters that differ in the add-on alone; their pods are scheduled in turn, in one
process, and only the cycles are timed, as CPU time. ``distinct`` cases make every pod another one
to the add-on, so that no result is shared.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import thread_time
from typing import Any

from bench.own_plugin import TURN, time_cycles
from proreus.addons.business_weight import BusinessWeight
from proreus.addons.delay_scheduling import DelayScheduling
from proreus.addons.device_share import DeviceShare
from proreus.addons.job_barrier import JobBarrier
from proreus.addons.network_aware.network_overhead import NetworkOverhead
from proreus.addons.network_aware.objects import APP_GROUP_LABEL, WORKLOAD_LABEL
from proreus.addons.node_metrics.metrics import (
    Metric,
    MetricsData,
    NodeMetricList,
    WatcherMetrics,
    Window,
)
from proreus.addons.node_metrics.reader import NodeMetricsReader
from proreus.addons.node_resource_topology_match import NodeResourceTopologyMatch
from proreus.addons.pod_state import PodState
from proreus.addons.sysched import SySched
from proreus.addons.trimaran.low_risk_over_commitment import LowRiskOverCommitment
from proreus.addons.trimaran.peaks import Peaks
from proreus.config.load import load
from proreus.feature_gates import FeatureGates
from proreus.framework import (
    CycleState,
    FilterPlugin,
    Handle,
    Plugin,
    PodInfo,
    ScorePlugin,
    Verdicts,
)
from proreus.objects import LABEL_ZONE, NODES, PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.runtime.registry import Registry
from proreus.testing import make_node, make_pod
from proreus.testing.profiles import profile_with

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


CASES = {
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


def with_running_pods(cluster: OfflineCluster) -> None:
    """Put ten pods on each node."""
    for number in range(10 * len(cluster.scheduler.cache.table)):
        cluster.api.put(PODS, plain(number, {"node_name": f"node-{number // 10}"}).pod)


FORMS = {
    "LowRiskOverCommitment": Case(measured(LowRiskOverCommitment), prepare=with_running_pods),
    "Peaks": Case(
        measured(Peaks), args={"nodePowerModel": {"*": {"k0": 368.2, "k1": -52.5, "k2": -0.05}}}
    ),
    "PodState": Case(PodState, prepare=with_terminating_pods),
    "SySched": Case(SySched, prepare=with_profiles),
    "NodeResourceTopologyMatch": Case(
        NodeResourceTopologyMatch, guaranteed, prepare=with_topologies
    ),
}
"""Add-ons whose two forms are compared."""


def forms(case: Case, nodes: int, rounds: int = 11) -> dict[str, tuple[float, float]]:
    """Return the medians of each point in milliseconds, node by node and over all nodes."""
    plugin = case.plugin
    run = Run(case, True, nodes, 0)
    (profile,) = run.cluster.scheduler.profiles.values()
    (made,) = (one for one in profile.plugins if isinstance(one, plugin))
    table, pod, state = run.cluster.scheduler.cache.table, case.pod(nodes, {}), CycleState()
    calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
    if isinstance(made, FilterPlugin):
        filter_plugin = made
        calls["Filter"] = (
            lambda: [filter_plugin.filter(state, pod, node) for node in table],
            lambda: filter_plugin.filter_all(state, pod, table, Verdicts(len(table))),
        )
    if isinstance(made, ScorePlugin):
        score_plugin = made
        calls["Score"] = (
            lambda: [score_plugin.score(state, pod, node) for node in table],
            lambda: score_plugin.score_all(state, pod, table),
        )
    found = {}
    for point, both in calls.items():
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for form, times in zip(both, seconds, strict=True):
                started = thread_time()
                form()
                times.append(thread_time() - started)
        per_node, over_all = (1e3 * statistics.median(times) for times in seconds)
        found[point] = per_node, over_all
    return found


class Run:
    """A cluster with an add-on or without, and the times of its pods so far."""

    def __init__(self, case: Case, enabled: bool, nodes: int, pods: int) -> None:
        plugins = [case.plugin] if enabled else []
        args = {case.plugin.name: case.args} if enabled and case.args else {}
        gates, registry = FeatureGates(), Registry((*IN_TREE_PLUGINS, *plugins))
        configuration = profile_with(plugins, args, {}, alone=False)
        config = load(configuration, registry, gates)
        self.cluster = OfflineCluster(config, registry, gates)
        self.seconds: list[float] = []
        for number in range(nodes):
            labels = {LABEL_ZONE: f"zone-{number % 9}", "example.com/pool": f"pool-{number % 40}"}
            self.cluster.api.put(NODES, make_node(f"node-{number}", "32", "256Gi", labels=labels))
        case.prepare(self.cluster)
        for number in range(pods):
            self.cluster.api.put(PODS, case.pod(number, {}).pod)

    async def schedule(self, pods: int) -> None:
        """Schedule some pods."""
        self.seconds += await time_cycles(self.cluster, pods)


async def measure(case: Case, nodes: int, pods: int) -> tuple[float, float]:
    """Return the medians of a scheduling cycle without and with the add-on, in microseconds."""
    runs = [Run(case, enabled, nodes, pods + TURN) for enabled in (False, True)]
    gc.collect()
    for _ in range(0, pods + TURN, TURN):
        for run in runs:
            await run.schedule(TURN)
    without, with_it = (1e6 * statistics.median(run.seconds[TURN:]) for run in runs)
    return without, with_it


def main() -> None:
    """Measure the cases and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=400)
    parser.add_argument("--forms", action="store_true", help="compare both forms of add-ons")
    parser.add_argument("names", nargs="*", help="beginnings of names of cases; all by default")
    options = parser.parse_args()
    if options.forms:
        print(f"{options.nodes} nodes, medians of 11, milliseconds for all nodes")
        for name, case in FORMS.items():
            for point, (per_node, over_all) in forms(case, options.nodes).items():
                print(f"{name:<40}{point:<8}{per_node:>10.2f}{over_all:>10.2f}", flush=True)
        return
    print(f"{options.nodes} nodes, medians of {options.pods} pods, microseconds a pod")
    print(f"{'case':<40}{'without':>10}{'with':>10}{'difference':>12}")
    for name, case in CASES.items():
        if options.names and not name.startswith(tuple(options.names)):
            continue
        without, with_it = asyncio.run(measure(case, options.nodes, options.pods))
        print(f"{name:<40}{without:>10.0f}{with_it:>10.0f}{with_it - without:>12.0f}", flush=True)


if __name__ == "__main__":
    main()
