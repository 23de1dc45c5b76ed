"""Random changes: state that is updated incrementally has the results of state built anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.verdicts import Verdicts
from proreus.objects.devices import RESOURCE_SLICES
from proreus.plugins.dynamic_resources import DynamicResources
from proreus.plugins.dynamic_resources.dra_manager import DRAManager
from proreus.testing import make_node

NODES = ("n1", "n2", "n3", "n4")
DEVICES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("slice"), st.sampled_from(NODES), DEVICES),
        st.tuples(st.just("net"), st.sampled_from(("all", "rack", "some")), DEVICES),
        st.tuples(st.just("counters"), st.sampled_from(NODES), st.integers(1, 3)),
        st.tuples(st.just("drop"), st.sampled_from((*NODES, "net", "counted")), st.none()),
        st.tuples(st.just("reserve"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("unreserve"), st.integers(0, 3), st.none()),
        st.tuples(st.just("forget"), st.none(), st.none()),
    ),
    max_size=25,
)


def labelled(node: str) -> dict[str, str]:
    return {"rack": "a" if node in ("n1", "n2") else "b"}


class World:
    """One cluster, changed step by step, and the pods that hold devices."""

    def __init__(self, make: Any) -> None:
        self.devices = make(*NODES, labels={node: labelled(node) for node in NODES})
        self.devices.device_class()
        self.pods: list[tuple[Any, CycleState, str]] = []
        self.count = 0

    def slice(self, node: str, names: list[str]) -> None:
        made = [self.devices.device(n, odd=n in "ac") for n in names]
        self.devices.slice(*made, node=node)

    def net(self, where: str, names: list[str]) -> None:
        in_rack = {"key": "rack", "operator": "In", "values": ["a"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [in_rack]}]}
        spec: dict[str, Any] = {
            "all": {"allNodes": True},
            "rack": {"nodeSelector": terms},
            "some": {"perDeviceNodeSelection": True},
        }[where]
        made = [self.devices.device(n) for n in names]
        if where == "some":
            for place, device in enumerate(made):
                device |= {"allNodes": True} if place % 2 else {"nodeName": "n3"}
        self.devices.slice(*made, node="", name="slice-net", pool="net", **spec)

    def counters(self, node: str, amount: int) -> None:
        memory = {"name": "m", "counters": {"gb": {"value": amount}}}
        self.devices.slice(
            node=node, name="slice-counted", pool="counted", count=2, sharedCounters=[memory]
        )
        used = [{"counterSet": "m", "counters": {"gb": {"value": 1}}}]
        parts = [{"name": n, "consumesCounters": used} for n in "pqr"]
        self.devices.slice(*parts, node=node, name="slice-parts", pool="counted", count=2)

    def drop(self, node: str, _: None) -> None:
        if f"slice-{node}" in self.devices.handle.store(RESOURCE_SLICES):
            self.devices.handle.remove("ResourceSlice", f"slice-{node}")

    def reserve(self, count: int, odd: bool) -> None:
        self.count += 1
        name = f"c{self.count}"
        cel = 'device.attributes["gpu.example.com"].?odd.orValue(false)' if odd else ""
        self.devices.claim(name, self.devices.request(count=count, cel=cel))
        pod = self.devices.pod(name, name=name)
        rejected = self.devices.filter(pod)
        node = next((node for node in NODES if node not in rejected), None)
        if node is not None:
            assert self.devices.plugin.reserve(self.devices.state, pod, node) is None
            self.pods.append((pod, self.devices.state, node))

    def unreserve(self, which: int, _: None) -> None:
        if which < len(self.pods):
            pod, state, node = self.pods.pop(which)
            self.devices.plugin.unreserve(state, pod, node)

    def forget(self, *_: None) -> None:
        """Begin a new epoch of availabilities, as after thousands of changes."""
        self.devices.plugin.manager.availability_index.begin_epoch()

    def check(self) -> None:
        handle, plugin = self.devices.handle, self.devices.plugin
        fresh = DRAManager(handle, plugin.features)
        for flying in plugin.manager.allocated.in_flight.values():
            fresh.allocated.add_in_flight(flying.claim, flying.allocation)
        other = DynamicResources(plugin.args, handle)
        other.manager = fresh
        for count in (1, 2):
            self.devices.claim("probe", self.devices.request(count=count))
            pod = self.devices.pod("probe", name="probe")
            mine = self.devices.filter(pod)
            state, verdicts = CycleState(), Verdicts(len(handle.nodes), "DynamicResources")
            assert other.pre_filter(state, pod, handle.nodes) is None
            other.filter_all(state, pod, handle.nodes, verdicts)
            for row, node in enumerate(handle.nodes):
                status = verdicts.status(row)
                assert (status.message if status else None) == mine.get(node.name), node


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_incremental_updates_agree_with_state_built_anew(
    cluster: Any, steps: list[tuple[str, Any, Any]]
) -> None:
    world = World(cluster)
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
        world.check()


# ---- nodes that come and go ----------------------------------------------------------------------


def test_pools_of_which_nothing_is_taken_any_more_are_forgotten(cluster: Any) -> None:
    world = World(cluster)
    uses = world.devices.plugin.manager.allocated.uses
    for _ in range(3):
        world.slice("n1", ["a", "b"])
        world.reserve(2, odd=False)
        assert len(uses) == 1
        world.unreserve(0, None)
        world.drop("n1", None)
    assert not uses


def test_nodes_that_are_gone_are_forgotten(cluster: Any) -> None:
    world = World(cluster)
    index, nodes = world.devices.plugin.manager.availability_index, world.devices.handle.nodes
    for number in range(50):
        info = NodeInfo(f"gone-{number}")
        info.set_node(make_node(info.name))
        nodes.add_node(info)
        index.column(nodes)
        nodes.remove_node(info)
    index.column(nodes)
    index.age()
    assert len(index._entries) == len(nodes)
    world.slice("n1", ["a"])
    world.reserve(1, odd=False)
    world.check()


@pytest.mark.parametrize("asked", [False, True])
def test_names_of_nodes_are_not_kept_while_nobody_asks(cluster: Any, asked: bool) -> None:
    world = World(cluster)
    index = world.devices.plugin.manager.availability_index
    if asked:
        index.column(world.devices.handle.nodes)
    for number in range(50):
        world.slice(f"gone-{number}", ["a"])
        world.drop(f"gone-{number}", None)
    world.slice("n1", ["a"])
    index.age()
    assert index._dirty_nodes <= set(NODES)
    world.check()
