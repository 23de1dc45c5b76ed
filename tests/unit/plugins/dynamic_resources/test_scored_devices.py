"""Devices behind extended resources in the scores of NodeResourcesFit and BalancedAllocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.plugins.dynamic_resources.devices.device_totals import DeviceTotals
from proreus.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.testing import make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

GPU = "example.com/gpu"
LEAST = {"type": "LeastAllocated", "resources": [{"name": GPU, "weight": 1}]}
MOST = {"type": "MostAllocated", "resources": [{"name": GPU, "weight": 1}]}
RISING = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
RATIO = {
    "type": "RequestedToCapacityRatio",
    "resources": [{"name": GPU, "weight": 1}],
    "requestedToCapacityRatio": RISING,
}
SELECTED = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
    ]
}
BROKEN = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Near"}]}]}
BIG = f'device.attributes["{"gpu.example.com"}"].big'

Scorer = NodeResourcesFit | NodeResourcesBalancedAllocation


def fit(devices: Any, strategy: Any = MOST) -> NodeResourcesFit:
    return make_plugin(NodeResourcesFit, devices.handle, {"scoringStrategy": strategy})


def asking(gpus: int = 1, name: str = "pending", **more: Any) -> PodInfo:
    return make_pod(name, resources={GPU: gpus}, **more)


def relabel(table: NodeTable, name: str, **labels: str) -> None:
    info = table[table.rows[name]]
    info.set_node(make_node(name, labels=labels))
    table.update_node(info)


def scores(devices: Any, plugin: Scorer, pod: PodInfo) -> list[int]:
    """Scores of all nodes, in columns and one by one."""
    nodes = devices.handle.nodes
    assert_agreement(plugin, pod, nodes)
    found = plugin.score_all(CycleState(), pod, nodes).tolist()
    assert found == [plugin.score(CycleState(), pod, node) for node in nodes]
    last = np.arange(len(nodes))[::-1][:2]
    fork = plugin.score_all(CycleState(), pod, nodes.fork(last))
    assert fork.tolist() == found[::-1][:2]
    return found


@pytest.fixture
def eight(cluster: Any) -> Any:
    """Two nodes with eight devices each, of a class that backs ``example.com/gpu``."""
    devices = cluster("n1", "n2")
    devices.device_class(extendedResourceName=GPU)
    for node in ("n1", "n2"):
        devices.slice(*(f"gpu-{i}" for i in range(8)), node=node)
    return devices


@pytest.mark.parametrize(
    ("strategy", "expected"),
    # n1 has 3 of 8 taken and the pod wants 2: 5 of 8; n2: 2 of 8.
    [(LEAST, [37, 75]), (MOST, [62, 25]), (RATIO, [62, 25])],
)
def test_devices_count_as_allocatable_and_claims_as_allocated(
    eight: Any, strategy: Any, expected: list[int]
) -> None:
    eight.claim("c", status=eight.allocated("gpu-0", "gpu-1", "gpu-7"))

    assert scores(eight, fit(eight, strategy), asking(2)) == expected


def test_more_than_there_is_scores_as_full(eight: Any) -> None:
    assert scores(eight, fit(eight, MOST), asking(9)) == [100, 100]
    assert scores(eight, fit(eight, LEAST), asking(9)) == [0, 0]


def test_the_name_of_the_class_is_a_resource_too(eight: Any) -> None:
    name = "deviceclass.resource.kubernetes.io/gpu"
    plugin = fit(eight, {"type": "MostAllocated", "resources": [{"name": name, "weight": 1}]})

    assert scores(eight, plugin, make_pod(resources={name: 4})) == [50, 50]


def test_other_resources_count_as_ever(eight: Any) -> None:
    resources = [{"name": "cpu", "weight": 1}, {"name": GPU, "weight": 3}]
    plugin = fit(eight, {"type": "MostAllocated", "resources": resources})

    # cpu: 2 of 4; devices: 2 of 8.
    assert scores(eight, plugin, make_pod(cpu="2", resources={GPU: 2})) == [31, 31]
    assert scores(eight, plugin, make_pod(cpu="2")) == [50, 50]


def test_what_a_node_has_itself_comes_first(cluster: Any) -> None:
    devices = cluster("n1", "n2", "n3", resources={"n1": {GPU: 4}, "n2": {GPU: 0}})
    devices.device_class(extendedResourceName=GPU)
    for node in ("n1", "n2"):
        devices.slice("gpu-0", "gpu-1", node=node)
    table = devices.handle.nodes
    table.add_pod(table.rows["n1"], asking(1, "there", node_name="n1"))
    # Its device is counted by its claim, of which there is none here.
    table.add_pod(table.rows["n2"], asking(1, "too", node_name="n2"))

    assert scores(devices, fit(devices), asking(1)) == [50, 50, 0]


def test_balanced_allocation_counts_devices_too(eight: Any) -> None:
    eight.claim("c", status=eight.allocated("gpu-0", "gpu-1"))
    resources = [{"name": "cpu"}, {"name": GPU}]
    plugin = make_plugin(NodeResourcesBalancedAllocation, eight.handle, {"resources": resources})
    pod = make_pod(cpu="1", resources={GPU: 4})

    # n1: (0, 2/8) -> (1/4, 6/8): 87 -> 75; n2: (0, 0) -> (1/4, 4/8): 100 -> 87.
    assert scores(eight, plugin, pod) == [69, 68]


def test_devices_are_counted_by_class_and_reach(cluster: Any) -> None:
    devices = cluster("n1", "n2", "n3", labels={"n1": {"rack": "a"}, "n2": {"rack": "a"}})
    devices.device_class("gpu", BIG, extendedResourceName=GPU)
    big = [devices.device(f"big-{i}", big=True) for i in range(4)]
    devices.slice(*big[:2], devices.device("small", big=False), node="n1")
    devices.slice(big[0], node="", name="rack", pool="rack", nodeSelector=SELECTED)
    devices.slice(big[0], node="", name="all", pool="all", allNodes=True)
    devices.slice(big[0], node="", name="unsaid", pool="unsaid")
    each = [
        devices.device("mine", big=True, nodeName="n3"),
        devices.device("racks", big=True, nodeSelector=SELECTED),
        devices.device("everybodys", big=True, allNodes=True),
        devices.device("nobodys", big=True),
    ]
    devices.slice(*each, node="", name="each", pool="each", perDeviceNodeSelection=True)

    # n1: 2 + rack, all, unsaid + racks, everybodys; n2: 5; n3: all, unsaid + mine, everybodys.
    assert scores(devices, fit(devices), asking(1)) == [14, 20, 25]


def test_generations_and_completeness_do_not_count(cluster: Any) -> None:
    devices = cluster("n1")
    devices.device_class(extendedResourceName=GPU)
    devices.slice("gpu-0", name="old", generation=1, count=3)
    devices.slice("gpu-0", "gpu-1", "gpu-2", name="new", generation=2, count=5)

    assert scores(devices, fit(devices), asking(1)) == [25]


@pytest.mark.parametrize(
    "use", [{"shareID": "s"}, {"shareID": "s", "consumedCapacity": {"memory": "1Gi"}}, {}]
)
def test_shared_devices_are_taken(eight: Any, use: dict[str, Any]) -> None:
    status = eight.allocated("gpu-0")
    status["allocation"]["devices"]["results"][0] |= use
    eight.claim("c", status=status)

    assert scores(eight, fit(eight), asking(1)) == [25, 12]


def test_an_error_makes_devices_count_for_nothing_where_they_can_be_reached(cluster: Any) -> None:
    devices = cluster("n1", "n2")
    devices.device_class("gpu", BIG, extendedResourceName=GPU)
    good = devices.device("good", big=True)
    devices.slice(good, devices.device("vague"), node="n1")
    devices.slice(good, node="n2")

    assert scores(devices, fit(devices), asking(1)) == [0, 100]

    devices.slice(good, node="n1")
    assert scores(devices, fit(devices), asking(1)) == [100, 100]

    devices.slice(good, node="", name="odd", pool="odd", nodeSelector=BROKEN)
    assert scores(devices, fit(devices), asking(1)) == [0, 0]


def test_scores_follow_claims_slices_classes_and_nodes(eight: Any) -> None:
    plugin, pod = fit(eight), asking(1)
    assert scores(eight, plugin, pod) == [12, 12]

    eight.claim("c", status=eight.allocated("gpu-0"))
    assert scores(eight, plugin, pod) == [25, 12]
    eight.claim("c", status=eight.allocated("gpu-0", "gpu-1", node="n2"))
    assert scores(eight, plugin, pod) == [12, 37]
    eight.handle.remove("ResourceClaim", "default/c")
    assert scores(eight, plugin, pod) == [12, 12]

    eight.slice("gpu-0", "gpu-1", node="n2")
    assert scores(eight, plugin, pod) == [12, 50]
    eight.slice("far", node="", name="rack", pool="rack", nodeSelector=SELECTED)
    assert scores(eight, plugin, pod) == [12, 50]
    relabel(eight.handle.nodes, "n2", rack="a")
    assert scores(eight, plugin, pod) == [12, 33]
    eight.handle.remove("ResourceSlice", "slice-n2")
    assert scores(eight, plugin, pod) == [12, 100]

    eight.device_class(
        "newer",
        "false",
        extendedResourceName=GPU,
        metadata={"creationTimestamp": "2026-01-01T00:00:00Z"},
    )
    assert scores(eight, plugin, pod) == [0, 0]
    eight.handle.remove("DeviceClass", "newer")
    eight.handle.remove("DeviceClass", "gpu")
    assert scores(eight, plugin, pod) == [0, 0]


async def test_allocations_in_flight_are_taken(eight: Any) -> None:
    eight.claim("c", eight.request(count=2))
    plugin = fit(eight)
    assert scores(eight, plugin, asking(1)) == [12, 12]

    pod = eight.pod("c")
    assert eight.reserve(pod, "n2") is None
    assert scores(eight, plugin, asking(1)) == [12, 37]
    eight.plugin.unreserve(eight.state, pod, "n2")
    assert scores(eight, plugin, asking(1)) == [12, 12]


def test_only_scores_that_depend_on_devices_are_not_cached(eight: Any) -> None:
    plugin = fit(eight)
    balanced = make_plugin(
        NodeResourcesBalancedAllocation, eight.handle, {"resources": [{"name": GPU}]}
    )
    for scorer in (plugin, balanced):
        assert scorer.sign(asking(1)) is None
        assert scorer.sign(make_pod(cpu="1")) is not None
        assert scorer.sign(make_pod(resources={"example.com/other": 1})) is not None
    assert make_plugin(NodeResourcesFit, eight.handle).sign(asking(1)) is not None

    eight.handle.remove("DeviceClass", "gpu")
    assert plugin.sign(asking(1)) is not None


def test_with_the_gate_off_devices_do_not_count(cluster: Any) -> None:
    devices = cluster("n1", gates=["DRAExtendedResource=false"])
    devices.device_class(extendedResourceName=GPU)
    devices.slice("gpu-0")
    plugin = fit(devices)

    assert plugin.sign(asking(1)) is not None
    assert scores(devices, plugin, asking(1)) == [0]


def test_columns_agree_with_single_nodes_after_random_changes(cluster: Any) -> None:
    names = [f"n{i}" for i in range(12)]
    devices = cluster(*names, labels={name: {"rack": "ab"[i % 2]} for i, name in enumerate(names)})
    devices.device_class(extendedResourceName=GPU)
    rng = np.random.default_rng(7)
    plugin, table, manager = fit(devices), devices.handle.nodes, devices.plugin.manager
    gpu, seen = manager.classes["gpu"], set()
    for step in range(120):
        node = names[int(rng.integers(12))]
        match int(rng.integers(5)):
            case 0:
                devices.slice(*(f"d{i}" for i in range(int(rng.integers(4)))), node=node)
            case 1:
                devices.claim(f"c{rng.integers(4)}", status=devices.allocated("d0", node=node))
            case 2:
                where = [{"allNodes": True}, {"nodeSelector": SELECTED}, {"nodeName": node}]
                devices.slice(
                    "d0", "d1", node="", name="wide", pool="wide", **where[int(rng.integers(3))]
                )
            case 3 if node in table:
                relabel(table, node, rack="ab"[int(rng.integers(2))])
            case 4 if node in table:
                table.remove_node(table[table.rows[node]])
            case _ if node not in table:
                info = NodeInfo(node)
                info.set_node(make_node(node, labels={"rack": "a"}))
                table.add_node(info)
        kept = scores(devices, plugin, asking(1))
        fresh = DeviceTotals(manager.pools, manager.allocated)
        counts = [fresh.at(GPU, gpu, node) for node in table]
        assert kept == [min(h + 1, c) * 100 // c if c else 0 for h, c in counts], f"step {step}"
        seen.update(kept)
    assert len(seen) > 4


def test_pools_that_come_and_go_unasked_are_not_kept(eight: Any) -> None:
    plugin, totals = fit(eight), eight.plugin.manager.totals
    assert scores(eight, plugin, asking(1)) == [12, 12]
    for number in range(1200):  # nodes of an autoscaler, while no pod asks for devices
        eight.slice("gpu-0", node=f"gone-{number}", name="gone", pool=f"gone-{number}")
    assert len(totals._classes[GPU]._counted) == 3
    eight.handle.remove("ResourceSlice", "gone")

    eight.slice(*(f"gpu-{i}" for i in range(4)), node="n1")
    assert scores(eight, plugin, asking(1)) == [25, 12]
