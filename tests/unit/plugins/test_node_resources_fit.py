"""NodeResourcesFit: worked examples of kube-scheduler's arithmetic, statuses and hints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proreus.base.errors import ConfigError
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.devices import DeviceClass, DeviceClassSpec
from proreus.objects.meta import ObjectMeta
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.plugins.node_resources_fit_args import NodeResourcesFitArgs, ScoringStrategy
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

GI = 2**30
CPU_AND_MEMORY = [{"name": "cpu"}, {"name": "memory"}]
RATIO = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}


def fit(handle: FakeHandle, **args: Any) -> NodeResourcesFit:
    return make_plugin(NodeResourcesFit, handle, args)


def filter_status(plugin: NodeResourcesFit, pod: PodInfo, nodes: NodeTable) -> Status | None:
    verdicts = Verdicts(len(nodes), plugin.name)
    plugin.filter_all(CycleState(), pod, nodes, verdicts)
    assert_agreement(plugin, pod, nodes)
    return verdicts.status(0)


def summary(status: Status | None) -> tuple[Code, tuple[str, ...]]:
    return (Code.SUCCESS, ()) if status is None else (status.code, status.reasons)


def filling(count: int = 10) -> list[PodInfo]:
    """Pods on n1 that request 3500m and 2Gi together."""
    rest = [make_pod(f"idle{i}", node_name="n1") for i in range(count - 1)]
    return [make_pod("big", "3500m", "2Gi", node_name="n1"), *rest]


FILTER = {
    "what is left": (make_pod(cpu="500m"), {}, Code.SUCCESS, ()),
    "more than is left": (
        make_pod(cpu="501m"),
        {},
        Code.UNSCHEDULABLE,
        ("Insufficient cpu",),
    ),
    "more than the node has": (
        make_pod(cpu="4001m"),
        {},
        Code.UNRESOLVABLE,
        ("Insufficient cpu",),
    ),
    "one short, one never": (
        make_pod(cpu="501m", memory="9Gi"),
        {},
        Code.UNRESOLVABLE,
        ("Insufficient cpu", "Insufficient memory"),
    ),
    "a resource that the node lacks": (
        make_pod(resources={"example.com/x": 1}),
        {},
        Code.UNRESOLVABLE,
        ("Insufficient example.com/x",),
    ),
    "an ignored group": (
        make_pod(resources={"example.com/x": 1}),
        {"ignoredResourceGroups": ["example.com"]},
        Code.SUCCESS,
        (),
    ),
    "an ignored resource": (
        make_pod(resources={"example.com/x": 1}),
        {"ignoredResources": ["example.com/x"]},
        Code.SUCCESS,
        (),
    ),
    "only extended resources can be ignored": (
        make_pod(resources={"hugepages-2Mi": "2Mi"}),
        {"ignoredResources": ["hugepages-2Mi"]},
        Code.UNRESOLVABLE,
        ("Insufficient hugepages-2Mi",),
    ),
    "zero of a resource that the node lacks": (
        make_pod(resources={"example.com/x": 0}),
        {},
        Code.SUCCESS,
        (),
    ),
    "pod-level requests count": (
        make_pod(cpu="100m", spec={"resources": {"requests": {"cpu": "501m"}}}),
        {},
        Code.UNSCHEDULABLE,
        ("Insufficient cpu",),
    ),
    "names that are not tracked": (make_pod(resources={"storage": "1Ti"}), {}, Code.SUCCESS, ()),
}


@pytest.mark.parametrize(("pod", "args", "code", "reasons"), FILTER.values(), ids=FILTER)
def test_filter(pod: PodInfo, args: dict[str, Any], code: Code, reasons: tuple[str, ...]) -> None:
    handle = FakeHandle([make_node("n1")], filling())

    assert summary(filter_status(fit(handle, **args), pod, handle.nodes)) == (code, reasons)


def test_a_node_accepts_its_allocatable_number_of_pods() -> None:
    handle = FakeHandle([make_node("n1")], filling(110))

    status = filter_status(fit(handle), make_pod(), handle.nodes)

    assert summary(status) == (Code.UNSCHEDULABLE, ("Too many pods",))


def test_a_node_without_allocatable_pods_accepts_none() -> None:
    handle = FakeHandle([make_node("n1", pods=0)])

    assert summary(filter_status(fit(handle), make_pod(cpu="5"), handle.nodes)) == (
        Code.UNRESOLVABLE,
        ("Too many pods", "Insufficient cpu"),
    )


def test_zero_requests_fit_a_node_that_is_overcommitted() -> None:
    handle = FakeHandle([make_node("n1", "1")], [make_pod("other", "2", node_name="n1")])

    assert filter_status(fit(handle), make_pod(memory="1Gi"), handle.nodes) is None


def test_negative_requests_fit_an_overcommitted_node() -> None:
    handle = FakeHandle([make_node("n1", "1")], [make_pod("other", "2", node_name="n1")])

    assert filter_status(fit(handle), make_pod(cpu="-100m", memory="1Gi"), handle.nodes) is None


def test_each_row_has_its_own_reasons() -> None:
    nodes = [make_node("n0"), make_node("n1", "1"), make_node("n2", "1", "1Gi"), make_node("n3")]
    handle = FakeHandle(nodes, [make_pod("other", memory="7Gi", node_name="n3")])
    plugin = fit(handle)
    verdicts = Verdicts(4, plugin.name)
    pod = make_pod(cpu="2", memory="2Gi")

    plugin.filter_all(CycleState(), pod, handle.nodes, verdicts)

    assert [summary(verdicts.status(row)) for row in range(4)] == [
        (Code.SUCCESS, ()),
        (Code.UNRESOLVABLE, ("Insufficient cpu",)),
        (Code.UNRESOLVABLE, ("Insufficient cpu", "Insufficient memory")),
        (Code.UNSCHEDULABLE, ("Insufficient memory",)),
    ]


def test_nothing_is_allocated_while_everything_fits() -> None:
    handle = FakeHandle([make_node("n1")])
    verdicts = Verdicts(1)

    fit(handle).filter_all(CycleState(), make_pod(cpu="1"), handle.nodes, verdicts)

    assert verdicts.ids is None


def test_more_resources_than_an_integer_has_bits() -> None:
    many = {f"example.com/r{i}": 1 for i in range(70)}
    handle = FakeHandle([make_node("n1", resources=dict.fromkeys(many, 1)), make_node("n2")])

    verdicts = Verdicts(2, "NodeResourcesFit")
    fit(handle).filter_all(CycleState(), make_pod(resources=many), handle.nodes, verdicts)

    assert verdicts.status(0) is None
    status = verdicts.status(1)
    assert status is not None
    assert len(status.reasons) == 70


# ---- score -------------------------------------------------------------------------------------

GPU = [{"name": "cpu"}, {"name": "memory"}, {"name": "example.com/gpu", "weight": 5}]
HEAVY_CPU = [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]
SCORES = [
    # requested including the pod: cpu, memory, gpu (the pod asks for); resources; least, most, rtcr
    ("2000m", "3Gi", 0, 0, CPU_AND_MEMORY, 56, 43, 44),
    ("500m", "1Gi", 0, 0, CPU_AND_MEMORY, 87, 12, 12),
    ("2000m", "3Gi", 0, 0, HEAVY_CPU, 53, 46, 47),
    ("5000m", "3Gi", 0, 0, CPU_AND_MEMORY, 31, 68, 69),
    ("0", "4Gi", 0, 0, CPU_AND_MEMORY, 75, 25, 50),
    ("2000m", "3Gi", 0, 0, GPU, 56, 43, 44),
    ("2000m", "3Gi", 2, 1, GPU, 60, 38, 39),
]


@pytest.mark.parametrize("row", SCORES)
def test_score(row: tuple[str, str, int, int, list[dict[str, Any]], int, int, int]) -> None:
    cpu, memory, gpus_there, gpus_wanted, resources, *expected = row
    handle = FakeHandle(
        [make_node("n1", resources={"example.com/gpu": 8})],
        [make_pod("there", "0", "0", resources={"example.com/gpu": gpus_there}, node_name="n1")],
    )
    pod = make_pod(cpu=cpu, memory=memory, resources={"example.com/gpu": gpus_wanted})
    strategies: list[dict[str, Any]] = [
        {"type": "LeastAllocated"},
        {"type": "MostAllocated"},
        {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": RATIO},
    ]
    scores = []
    for strategy in strategies:
        plugin = fit(handle, scoringStrategy={**strategy, "resources": resources})
        assert_agreement(plugin, pod, handle.nodes)
        scores.append(plugin.score(CycleState(), pod, handle.nodes[0]))

    assert scores == expected


def test_a_pod_without_requests_is_scored_with_defaults() -> None:
    handle = FakeHandle([make_node("n1", "2", "4Gi")])

    assert fit(handle).score(CycleState(), make_pod(), handle.nodes[0]) == 95


def test_score_ignores_pod_level_requests_of_the_new_pod() -> None:
    handle = FakeHandle([make_node("n1")])
    plugin = fit(handle)
    pod_level = {"resources": {"requests": {"cpu": "2"}}}
    plain = make_pod(cpu="500m")
    wide = make_pod(cpu="500m", spec={**pod_level, "containers": [_container("500m")]})

    scores = [plugin.score(CycleState(), pod, handle.nodes[0]) for pod in (plain, wide)]

    assert scores[0] == scores[1]
    assert plugin.sign(plain) != plugin.sign(wide)


def _container(cpu: str) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": {"cpu": cpu}}}


def test_a_node_without_any_of_the_resources_scores_0() -> None:
    handle = FakeHandle([make_node("n1", 0, 0), make_node("n2", "4", 0)])
    plugin = fit(handle)
    pod = make_pod(cpu="1", memory="1Gi")

    assert_agreement(plugin, pod, handle.nodes)
    assert [plugin.score(CycleState(), pod, node) for node in handle.nodes] == [0, 75]


def test_pods_with_equal_requests_share_a_signature() -> None:
    plugin = fit(FakeHandle())

    assert plugin.sign(make_pod("a", "1", "1Gi")) == plugin.sign(make_pod("b", "1000m", GI))
    assert plugin.sign(make_pod("a", "1")) != plugin.sign(make_pod("b", "2"))
    # Not named and zero count the same in Filter, and differ in Score.
    assert plugin.sign(make_pod("a")) != plugin.sign(make_pod("b", cpu="0"))


def test_arguments_are_checked() -> None:
    handle = FakeHandle()
    bad = NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type="Emptiest"))

    with pytest.raises(ConfigError, match=r'scoringStrategy\.type: Unsupported value: "Emptiest"'):
        NodeResourcesFit(bad, handle)


# ---- hints -------------------------------------------------------------------------------------


def events(*gates: str, version: str = "1.37") -> dict[str, ClusterEvent]:
    handle = FakeHandle(gates=gates, kubernetes_version=version)
    return {e.resource: e for e in fit(handle).events_to_register()}


def helps(resource: str, pod: PodInfo, old: Any, new: Any) -> bool:
    hint = events()[resource].hint
    assert hint is not None
    return hint(pod, old, new)


def test_a_deleted_pod_frees_resources_if_it_had_a_node() -> None:
    waiting = make_pod("waiting", "1")

    assert helps("AssignedPod", waiting, make_pod("a", "1", node_name="n1").pod, None)
    assert helps(
        "AssignedPod", waiting, make_pod("a", status={"nominatedNodeName": "n1"}).pod, None
    )
    assert not helps("AssignedPod", waiting, make_pod("a", "1").pod, None)


def test_a_scaled_down_pod_frees_the_resource() -> None:
    waiting = make_pod("waiting", "1")
    large = make_pod("a", "2", "2Gi", node_name="n1").pod

    assert helps("AssignedPod", waiting, large, make_pod("a", "1", "2Gi", node_name="n1").pod)
    assert not helps("AssignedPod", waiting, large, make_pod("a", "2", "1Gi", node_name="n1").pod)
    assert not helps("AssignedPod", waiting, large, make_pod("a", "1", "2Gi").pod)
    assert helps("TargetPod", waiting, waiting.pod, waiting.pod)


def test_a_new_node_helps_if_the_pod_would_fit_it_empty() -> None:
    waiting = make_pod("waiting", "2")

    assert helps("Node", waiting, None, make_node("n1", "2"))
    assert not helps("Node", waiting, None, make_node("n1", "1"))
    assert not helps("Node", waiting, None, make_node("n1", "2", pods=0))


def test_a_node_with_more_of_a_requested_resource_helps() -> None:
    waiting = make_pod("waiting", "2", resources={"example.com/gpu": 1})
    gpu = {"example.com/gpu": 1}
    small = make_node("n1", "2", resources=gpu)

    assert helps("Node", waiting, small, make_node("n1", "3", resources=gpu))
    assert helps("Node", waiting, small, make_node("n1", "2", resources={"example.com/gpu": 2}))
    assert helps("Node", waiting, small, make_node("n1", "2", pods=111, resources=gpu))
    assert not helps("Node", waiting, small, make_node("n1", "2", "16Gi", resources=gpu))
    assert not helps("Node", waiting, make_node("n1", "3"), make_node("n1", "4"))


def test_a_pod_leaves_its_nominated_node_once_that_is_too_small() -> None:
    gpu, nominated = {"example.com/gpu": 1}, {"nominatedNodeName": "n1"}
    waiting = make_pod("waiting", "2", resources=gpu, status=nominated)
    before, shrunk = make_node("n1", "2", resources=gpu), make_node("n1", "1", resources=gpu)

    assert helps("Node", waiting, before, shrunk)
    assert not helps("Node", waiting, shrunk, shrunk)
    assert not helps("Node", waiting, before, make_node("n1", "2"))
    assert not helps("Node", waiting, make_node("n2", "2", resources=gpu), make_node("n2", "1"))
    member = make_pod(
        "member", "2", status=nominated, spec={"schedulingGroup": {"podGroupName": "g"}}
    )
    assert not helps("Node", member, before, shrunk)


def device_class(name: str, resource: str | None = None) -> DeviceClass:
    spec = DeviceClassSpec(extended_resource_name=resource)
    return DeviceClass(metadata=ObjectMeta(name=name), spec=spec)


def test_a_device_class_with_the_resource_name_helps() -> None:
    kind = "resource.k8s.io/DeviceClass"
    waiting = make_pod("waiting", resources={"example.com/gpu": 1})
    implicit = make_pod("w", resources={"deviceclass.resource.kubernetes.io/fast": 1})

    assert helps(kind, waiting, None, device_class("fast", "example.com/gpu"))
    assert not helps(kind, waiting, None, device_class("fast"))
    assert helps(kind, waiting, device_class("fast"), device_class("fast", "example.com/gpu"))
    same = device_class("fast", "example.com/gpu")
    assert not helps(kind, waiting, same, same)
    assert helps(kind, implicit, None, device_class("fast"))


def test_device_classes_count_with_their_gate_only() -> None:
    assert "resource.k8s.io/DeviceClass" not in events("DRAExtendedResource=false", version="1.36")


@pytest.mark.parametrize("gate", [True, False])
def test_dra_backed_resources_are_ignored_on_nodes_without_their_own(gate: bool) -> None:
    nodes = [
        make_node("own", cpu=4, resources={"example.com/gpu": 1}),
        make_node("none", cpu=4),
        make_node("small", cpu=1),
    ]
    handle = FakeHandle(nodes, gates=[f"DRAExtendedResource={gate}"], kubernetes_version="1.36")
    plugin = fit(handle)
    before = plugin.invalidation_key(handle.nodes)
    cls = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}
    handle.add({"kind": "DeviceClass", **cls})
    assert (plugin.invalidation_key(handle.nodes) != before) is gate
    pod = make_pod(cpu=2, resources={"example.com/gpu": 2})
    verdicts = Verdicts(3, plugin.name)
    plugin.filter_all(CycleState(), pod, handle.nodes, verdicts)
    assert_agreement(plugin, pod, handle.nodes)
    gpu, cpu = "Insufficient example.com/gpu", "Insufficient cpu"
    assert [summary(verdicts.status(row)) for row in range(3)] == [
        (Code.UNRESOLVABLE, (gpu,)),
        (Code.SUCCESS, ()) if gate else (Code.UNRESOLVABLE, (gpu,)),
        (Code.UNRESOLVABLE, (cpu,) if gate else (cpu, gpu)),
    ]
    (event, *_) = [e for e in plugin.events_to_register() if e.resource == "Node"]
    assert event.hint is not None
    assert event.hint(pod, None, nodes[1]) is gate
    assert event.hint(pod, nodes[1], nodes[1]) is gate


def test_resources_that_no_node_has_are_rejected_without_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"example.com/kind-{number}" for number in range(5000)]
    nodes = [make_node("n0"), make_node("n1", pods=1), make_node("n2", cpu=1)]
    handle = FakeHandle(nodes=nodes, pods=[make_pod("there", node_name="n1")])
    pod = make_pod(cpu="2", resources=dict.fromkeys(names, 1))
    plugin = fit(handle)
    one_by_one = [plugin.filter(CycleState(), pod, node) for node in handle.nodes]
    monkeypatch.setattr(NodeResourcesFit, "filter", _not_called)

    verdicts = Verdicts(3, plugin.name)
    plugin.filter_all(CycleState(), pod, handle.nodes, verdicts)

    assert [verdicts.status(row) for row in range(3)] == one_by_one
    expected = tuple(f"Insufficient {name}" for name in names)
    assert summary(verdicts.status(0)) == (Code.UNRESOLVABLE, expected)
    assert summary(verdicts.status(1))[1] == ("Too many pods", *expected)
    assert summary(verdicts.status(2))[1] == ("Insufficient cpu", *expected)


def _not_called(*_: object) -> None:
    raise AssertionError("called for a single node")


def test_some_nodes_are_asked_about_more_resources_than_there_are() -> None:
    handle = FakeHandle([make_node(f"n{number}") for number in range(3)])
    plugin = make_plugin(NodeResourcesFit, handle)
    pod = make_pod("p", resources={f"example.com/r{number}": 1 for number in range(200)})
    some = handle.nodes.take(np.array([0, 2]))
    verdicts = Verdicts(len(some), plugin.name)
    plugin.filter_all(CycleState(), pod, some, verdicts)
    assert [len(status.reasons) for row in range(2) if (status := verdicts.status(row))] == [
        200
    ] * 2
