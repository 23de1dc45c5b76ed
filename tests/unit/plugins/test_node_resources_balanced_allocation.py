"""NodeResourcesBalancedAllocation: the change in balance, with kube-scheduler's worked examples."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.status import Status
from proreus.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

WITH_GPU = {"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "example.com/gpu"}]}


@pytest.mark.parametrize(
    ("there", "wanted", "score"),
    [
        (("1000m", "2Gi", 0), ("1000m", "1Gi", 0), 71),
        (("0", "0", 0), ("1000m", "4Gi", 0), 68),
        (("3000m", "1Gi", 0), ("0", "3Gi", 0), 84),
        (("1000m", "4Gi", 0), ("500m", "1Gi", 2), 77),
        (("4500m", "1Gi", 0), ("500m", "1Gi", 0), 78),
    ],
)
def test_score(there: tuple[str, str, int], wanted: tuple[str, str, int], score: int) -> None:
    def pod(name: str, amounts: tuple[str, str, int], **where: Any) -> Any:
        cpu, memory, gpus = amounts
        return make_pod(name, cpu, memory, resources={"example.com/gpu": gpus}, **where)

    node = make_node("n1", resources={"example.com/gpu": 8})
    handle = FakeHandle([node], [pod("there", there, node_name="n1")])
    plugin = make_plugin(NodeResourcesBalancedAllocation, handle, WITH_GPU)
    pending = pod("pending", wanted)

    assert_agreement(plugin, pending, handle.nodes)
    assert plugin.score(CycleState(), pending, handle.nodes[0]) == score


def test_one_resource_is_always_balanced() -> None:
    handle = FakeHandle([make_node("n1", "4", 0), make_node("n2", 0, 0)])
    plugin = make_plugin(NodeResourcesBalancedAllocation, handle)
    pod = make_pod(cpu="3")

    assert_agreement(plugin, pod, handle.nodes)
    assert [plugin.score(CycleState(), pod, node) for node in handle.nodes] == [75, 75]


def test_pods_that_request_none_of_the_resources_are_skipped() -> None:
    handle = FakeHandle([make_node("n1")])
    plugin = make_plugin(NodeResourcesBalancedAllocation, handle)

    def result(pod: Any) -> Status | None:
        return plugin.pre_score(CycleState(), pod, handle.nodes)

    assert result(make_pod()) == Status.skip()
    assert result(make_pod(cpu="0", resources={"example.com/gpu": 1})) == Status.skip()
    assert result(make_pod(cpu="1m")) is None
    assert result(make_pod(spec={"resources": {"requests": {"cpu": "1"}}})) is None


def test_a_pod_without_requests_scores_0_if_pre_score_is_disabled() -> None:
    handle = FakeHandle([make_node("n1", "4", "8Gi"), make_node("n2")])
    plugin = make_plugin(NodeResourcesBalancedAllocation, handle)
    pod = make_pod(cpu="0")

    assert [plugin.score(CycleState(), pod, node) for node in handle.nodes] == [0, 0]
    assert plugin.score_all(CycleState(), pod, handle.nodes) == 0


def test_only_pods_with_equal_requests_share_a_signature() -> None:
    plugin = make_plugin(NodeResourcesBalancedAllocation, FakeHandle())

    assert plugin.sign(make_pod("a", "1")) == plugin.sign(make_pod("b", "1"))
    assert plugin.sign(make_pod("a", "1")) != plugin.sign(make_pod("b", "2"))


def test_resources_in_the_status_count_if_they_exceed_the_requests() -> None:
    given = {"cpu": "2", "memory": "1Gi"}
    statuses = [{"name": "main", "resources": {"requests": given}, "allocatedResources": given}]
    handle = FakeHandle([make_node("n1", "4", "8Gi")])
    plugin = make_plugin(NodeResourcesBalancedAllocation, handle)
    requesting = make_pod("requesting", cpu="500m", memory="1Gi")
    holding = make_pod("holding", cpu="500m", memory="1Gi", status={"containerStatuses": statuses})

    assert_agreement(plugin, holding, handle.nodes)
    assert plugin.score(CycleState(), requesting, handle.nodes[0]) == 75
    assert plugin.score(CycleState(), holding, handle.nodes[0]) == 65  # (50 + 81 - 100) // 2 + 50
    assert plugin.sign(requesting) != plugin.sign(holding)


def test_resources_in_the_status_without_requests_are_scored() -> None:
    statuses = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    handle = FakeHandle([make_node("n1")])
    plugin = make_plugin(NodeResourcesBalancedAllocation, handle)
    holding = make_pod("holding", status={"containerStatuses": statuses})

    assert plugin.pre_score(CycleState(), holding, handle.nodes) is None
