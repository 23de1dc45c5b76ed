"""Add-ons that extend DefaultPreemption choose nodes by the costs of victims, as it does."""

from __future__ import annotations

import pytest

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.addons.gang_preemption import GangPreemption
from proreus.addons.preemption_toleration import PreemptionToleration
from proreus.framework import CycleState, Status
from proreus.framework.pod_group import PodGroupInfo
from proreus.objects.meta import ObjectMeta
from proreus.objects.scheduling import PodGroup, PodGroupSpec
from proreus.plugins.default_preemption import DefaultPreemption
from proreus.testing import FakeHandle, make_node, make_pod


@pytest.mark.parametrize("plugin_type", [CapacityScheduling, GangPreemption, PreemptionToleration])
async def test_victims_cost_nothing_more_once_a_pod_has_their_place(
    plugin_type: type[DefaultPreemption],
) -> None:
    victims = [make_pod(f"v{node}", "1", priority=0, node_name=node) for node in "ab"]
    nodes = [make_node(name, "1") for name in "abc"]
    handle = FakeHandle(nodes, victims, gates=["GenericWorkload=true"], kubernetes_version="1.38")
    plugin = plugin_type(plugin_type.Args(), handle)
    pod = make_pod("p", "1", priority=9)
    api = PodGroup(ObjectMeta(name="g", namespace="default"), PodGroupSpec(priority=9))
    group = PodGroupInfo("default", "g", (pod,), api)
    ranks = []

    async def schedule() -> Status:
        state = CycleState()
        ranks.append(plugin.rank_nodes().tolist())
        plugin.reserve(state, pod, "a")
        ranks.append(plugin.rank_nodes().tolist())
        plugin.unreserve(state, pod, "a")
        ranks.append(plugin.rank_nodes().tolist())
        return Status.unschedulable("no room")

    await plugin.pod_group_post_filter(CycleState(), group, schedule)
    assert ranks == [[1, 1, 0], [0, 1, 0], [1, 1, 0]]
