"""Both forms of each add-on, and its cached results, agree on random clusters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

from proreus.addons.business_weight import BusinessWeight
from proreus.addons.colocation import Colocation
from proreus.addons.delay_scheduling import DelayScheduling
from proreus.addons.device_share import DeviceShare
from proreus.addons.group_topology import GroupTopology
from proreus.addons.load_aware_scheduling import LoadAwareScheduling
from proreus.addons.network_aware.distances import Dependency, Distances
from proreus.addons.network_aware.network_overhead import NetworkOverhead, _Dependencies
from proreus.addons.network_aware.objects import (
    DestinationCost,
    NetworkTopology,
    NetworkTopologySpec,
    NetworkWeights,
    OriginCosts,
    TopologyCosts,
)
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
from proreus.addons.node_resource_topology_match.zones import (
    NodeResourceTopology,
    TopologyZone,
    ZoneResource,
)
from proreus.addons.node_resources_allocatable import NodeResourcesAllocatable
from proreus.addons.pod_state import PodState
from proreus.addons.reservation import Reservation
from proreus.addons.reservation.held import HeldReservation
from proreus.addons.reservation.objects import (
    RESERVATION_ORDER,
    ReservationObject,
    ReservationSpec,
    ReservationStatus,
    ReservationTemplate,
)
from proreus.addons.sysched import SeccompProfile, SeccompProfileSpec, SyscallRule, SySched
from proreus.addons.trimaran.load_variation_risk_balancing import LoadVariationRiskBalancing
from proreus.addons.trimaran.low_risk_over_commitment import LowRiskOverCommitment
from proreus.addons.trimaran.peaks import Peaks
from proreus.addons.trimaran.target_load_packing import TargetLoadPacking
from proreus.framework import (
    CycleState,
    FilterPlugin,
    Handle,
    IntArray,
    NodeTable,
    Plugin,
    PodInfo,
    ScorePlugin,
    Status,
)
from proreus.objects import (
    LABEL_REGION,
    LABEL_ZONE,
    Container,
    ObjectMeta,
    PodSpec,
    ResourceRequirements,
)
from proreus.process.loading.load import add_ons
from proreus.testing.agreement import agree
from proreus.testing.clusters import clusters
from proreus.testing.strategies import inter_pod_clusters
from proreus.testing.vocabulary import Vocabulary

METRICS = WatcherMetrics(
    Window("15m", 0, 1e12),
    MetricsData(
        {
            f"n{number}": NodeMetricList(
                (
                    Metric("CPU", "AVG", 15.0 * number),
                    Metric("CPU", "STD", 3.0 * number),
                    Metric("Memory", "Latest", 50.0),
                )
            )
            for number in range(6)
        }
    ),
)


def measured(plugin: type[NodeMetricsReader]) -> type[NodeMetricsReader]:
    """Return the plugin, with metrics from the start."""

    class Measured(plugin):  # type: ignore[valid-type, misc]
        def __init__(self, args: Any, handle: Handle) -> None:
            super().__init__(args, handle)
            self.use(METRICS)

    return Measured


class WithTopologies(NodeResourceTopologyMatch):
    """The plugin, with topologies from the start: some zones have devices."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        for number in range(6):
            zones = tuple(
                TopologyZone(
                    name=f"node-{place}",
                    type="Node",
                    resources=(
                        ZoneResource(name="cpu", available=number),
                        ZoneResource(name="memory", available="2Gi"),
                        ZoneResource(name="example.com/gpu", available=place * number),
                    ),
                )
                for place in range(2)
            )
            scope = ("SingleNUMANodePodLevel", "SingleNUMANodeContainerLevel")[number % 2]
            found = NodeResourceTopology(
                metadata=ObjectMeta(name=f"n{number}"), topology_policies=(scope,), zones=zones
            )
            self._cache.report(None, found)


class WithDependencies(NetworkOverhead):
    """The plugin, as if every pod depended on three placed ones."""

    def _dependencies(self, pod: PodInfo) -> _Dependencies:
        def costs(label: str, cost: int) -> TopologyCosts:
            to = tuple(DestinationCost(destination=v, network_cost=cost) for v in ("a", "b", "7"))
            origins = tuple(OriginCosts(origin=one, cost_list=to) for one in ("a", "7"))
            return TopologyCosts(topology_key=label, origin_list=origins)

        lists = (costs(LABEL_REGION, 9), costs(LABEL_ZONE, 4))
        weights = (NetworkWeights(name="UserDefined", topology_list=lists),)
        topology = NetworkTopology(spec=NetworkTopologySpec(weights=weights))
        found = (Dependency({"n0": 2}, 3), Dependency({"n1": 1}, 5))
        return _Dependencies(found, Distances(topology, "UserDefined"))


class WithProfiles(SySched):
    """The plugin, where some nodes run pods."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        for number in range(3):
            rule = SyscallRule(action="SCMP_ACT_ALLOW", names=("read", f"call{number}"))
            name = "all-syscalls" if number == 0 else f"p{number}"
            self._profiles = {
                **self._profiles,
                f"default/{name}": SeccompProfile(spec=SeccompProfileSpec(syscalls=(rule,))),
            }
            self._running[f"n{number}"] = {"u": (f"default/p{number}",)}


class WithPositions(GroupTopology):
    """The plugin, as if every pod were of a group whose domains are filled in some order."""

    def _positions_in(self, state: CycleState) -> IntArray:
        values = self.handle.nodes.label_values(LABEL_ZONE).values
        return np.array([7 * number % 5 for number in range(len(values))] + [9], dtype=np.int64)


class WithOnlinePods(Colocation):
    """The plugin, as if all pods were new on their nodes."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        for node in handle.nodes:
            for pod in node.pods.values():
                self.recent.note(pod.pod, node.name)


class WithReservations(Reservation):
    """The plugin, as if every pod might take from the reservations on two nodes."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        self._write_usable(state)
        return super().pre_score(state, pod, nodes)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        self._write_usable(state)
        return super().score_all(state, pod, nodes)

    def _write_usable(self, state: CycleState) -> None:
        resources = ResourceRequirements(requests={"cpu": "4", "memory": "4Gi"})
        container = Container(name="c", resources=resources)
        template = ReservationTemplate(spec=PodSpec(containers=(container,)))
        usable = {}
        for name, order in (("n0", "0"), ("n1", "2")):
            meta = ObjectMeta(name=f"r-{name}", labels={RESERVATION_ORDER: order})
            status = ReservationStatus(phase="Available", node_name=name)
            spec = ReservationSpec(template=template)
            found = ReservationObject(metadata=meta, spec=spec, status=status)
            usable[name] = HeldReservation(found, {}, None)
        state.write(self.name, usable)


class WithPreference(DelayScheduling):
    """The plugin, as if every pod preferred each other node."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> None:
        state.write(self.name, np.arange(len(self.handle.nodes)) % 2 == 0)


EXAMPLES = 40
"""Clusters a case: what the forms of an add-on read is little."""


class Case(NamedTuple):
    plugin: type[Plugin]
    name: str = ""
    args: Mapping[str, Any] | None = None
    drawn_from: Any = None
    vocabulary: Vocabulary | None = None
    made: type[Plugin] | None = None
    constant: Collection[Literal["Filter", "Score"]] = ()


CASES = (
    Case(NodeResourcesAllocatable),
    Case(
        NodeResourcesAllocatable,
        "most",
        {"mode": "Most", "resources": [{"name": "example.com/gpu", "weight": 5}]},
    ),
    *(
        Case(
            NodeMetadata,
            strategy,
            {"metadataKey": "rack", "scoringStrategy": strategy, "defaultValue": default},
            drawn_from=inter_pod_clusters(),
        )
        for strategy, default in (("Highest", ""), ("Lowest", "2.5"))
    ),
    Case(PodState, constant=("Score",)),
    Case(NodeResourceTopologyMatch, made=WithTopologies, constant=("Score",)),
    Case(
        NetworkOverhead,
        drawn_from=clusters(
            vocabulary=Vocabulary(node_labels=frozenset((LABEL_REGION, LABEL_ZONE)))
        ),
        made=WithDependencies,
    ),
    Case(
        Colocation,
        drawn_from=clusters(
            vocabulary=Vocabulary(
                resources=frozenset(("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"))
            )
        ),
        made=WithOnlinePods,
    ),
    Case(Reservation, made=WithReservations),
    Case(SySched, made=WithProfiles),
    Case(
        GroupTopology,
        drawn_from=clusters(vocabulary=Vocabulary(node_labels=frozenset((LABEL_ZONE,)))),
        made=WithPositions,
    ),
    Case(
        LoadAwareScheduling,
        args={"usageThresholds": {"cpu": 65, "memory": 95}, "dominantResourceWeight": 1},
        made=measured(LoadAwareScheduling),
    ),
    Case(
        BusinessWeight,
        args={
            "podLabel": "app",
            "nodeLabel": "rack",
            "weights": {"a": {"1": 10, "2": 90, "": 7}, "b": {"1": 70}},
        },
        drawn_from=inter_pod_clusters(),
    ),
    Case(DelayScheduling, args={"soft": True}, made=WithPreference),
    *(
        Case(
            DeviceShare,
            strategy,
            {"scoringStrategy": {"type": strategy}, "cpuOnlyPods": kept_off},
            vocabulary=Vocabulary(
                resources=frozenset(("nvidia.com/gpu", "nvidia.com/mig-1g.5gb")),
                node_labels=frozenset(("nvidia.com/mig.capable",)),
                values=("true",),
            ),
        )
        for strategy, kept_off in (
            ("LeastAllocated", "Avoid"),
            ("MostAllocated", "Reject"),
            ("LeastFragmented", "Allow"),
        )
    ),
    Case(TargetLoadPacking, made=measured(TargetLoadPacking)),
    Case(LoadVariationRiskBalancing, made=measured(LoadVariationRiskBalancing)),
    Case(
        LoadVariationRiskBalancing,
        "sensitive",
        {"safeVarianceSensitivity": 3, "safeVarianceMargin": 2},
        made=measured(LoadVariationRiskBalancing),
    ),
    Case(TargetLoadPacking, "full", {"targetUtilization": 100}, made=measured(TargetLoadPacking)),
    Case(LowRiskOverCommitment, made=measured(LowRiskOverCommitment)),
    Case(
        Peaks,
        args={"nodePowerModel": {"*": {"k1": -90, "k2": -0.07}}},
        made=measured(Peaks),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.plugin.name}-{case.name}")
def test_forms_agree(case: Case) -> None:
    agree(
        case.made or case.plugin,
        case.args,
        drawn_from=case.drawn_from,
        vocabulary=case.vocabulary,
        may_be_constant=case.constant,
        examples=EXAMPLES,
    )


@pytest.mark.parametrize("name", add_ons())
def test_every_add_on_is_covered(name: str) -> None:
    plugin = add_ons()[name]()
    assert plugin.name == name
    asked_about_nodes = issubclass(plugin, (FilterPlugin, ScorePlugin))
    assert asked_about_nodes == (plugin in {case.plugin for case in CASES})
