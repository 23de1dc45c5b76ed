"""Pods that a plugin provides, and pods whose place another may take: the public API."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from proreus.engine.debugger.cache_comparer import CacheComparer
from proreus.framework import (
    CycleState,
    FilterPlugin,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    PodSourcePlugin,
    PreFilterPlugin,
    ReservePlugin,
    Status,
    is_provided,
)
from proreus.objects import PODS, Pod
from proreus.testing import FakeHandle, Harness, make_node, make_pod


class Placeholders(PodSourcePlugin, PreFilterPlugin, ReservePlugin):
    """Holds room by provided pods; pods with the label ``takes`` may take their place."""

    Args = PluginArgs

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.patches: list[dict] = []
        self.deleted: list[str] = []
        self.removed: dict[str, Pod] = {}

    def hold(self, name: str, cpu: str, node_name: str = "", **given: Any) -> Pod:
        pod = make_pod(f"held/{name}", cpu, node_name=node_name, **given).pod
        self.handle.put_pod(pod, self)
        return pod

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        if "takes" in pod.labels:
            state.replaceable_pods = {
                node.name: held
                for node in nodes
                if (held := [one for one in node.pods.values() if "/" in one.name])
            }
        return None

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        for held in state.replaceable_pods.get(node_name, ()):
            self.removed[pod.uid] = held.pod
            self.handle.remove_pod(held.key)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        held = self.removed.pop(pod.uid, None)
        if held is not None:
            self.handle.put_pod(held, self)

    async def bind_provided_pod(self, pod: Pod, node_name: str) -> None:
        bound = replace(pod, spec=replace(pod.spec, node_name=node_name))
        self.handle.put_pod(bound, self)

    def provided_for(self, pod: PodInfo) -> dict[str, PodInfo]:
        pods = (one for node in self.handle.nodes for one in node.pods.values())
        held = (one for one in pods if "takes" in pod.labels and is_provided(one.pod))
        return {one.pod.spec.node_name: one for one in held}

    async def patch_provided_pod_status(self, pod: Pod, patch: dict) -> None:
        self.patches.append(patch)

    async def patch_provided_pod(self, pod: Pod, patch: dict) -> None:
        self.patches.append(patch)

    async def delete_provided_pod(self, pod: Pod) -> None:
        self.deleted.append(pod.metadata.name)
        self.handle.remove_pod(f"{pod.metadata.namespace}/{pod.metadata.name}")


class Odd(FilterPlugin):
    """Rejects nodes with an even number of pods, one node at a time and without a signature."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if len(node.pods) % 2 else Status.unschedulable("even")


def cluster(nodes: int = 1, *more: type) -> tuple[Harness, Placeholders]:
    harness = Harness([Placeholders, *more], [make_node(f"n{n}", "4") for n in range(nodes)])
    return harness, harness.plugin(Placeholders)


def test_a_provided_pod_is_scheduled_and_counts_on_its_node() -> None:
    harness, plugin = cluster()
    plugin.hold("a", "3")
    assert [str(one.pod) for one in harness.schedule_all()]
    assert harness.node("n0").requested["cpu"] == 3000
    assert not harness.schedule(make_pod("p", "2")).node
    assert not [one for one in harness.events() if "held" in one.pod]
    harness.scheduler.cache.validate()


def test_why_it_does_not_fit_is_told_to_its_plugin() -> None:
    harness, plugin = cluster()
    pod = plugin.hold("a", "5")
    harness.schedule_all()
    (patch,) = plugin.patches
    assert "Insufficient cpu" in patch["status"]["conditions"][0]["message"]
    harness.scheduler.cache.validate()
    plugin.handle.remove_pod(f"default/{pod.metadata.name}")
    assert not harness.scheduler.queue.keys()


def test_it_may_be_a_victim_of_preemption() -> None:
    harness, plugin = cluster()
    plugin.hold("a", "3", "n0")
    harness.schedule(make_pod("important", "2", priority=10))
    assert plugin.deleted == ["held/a"]
    harness.advance(2)
    harness.schedule_all()
    assert harness.pod("important").spec.node_name == "n0"


def test_it_may_shrink_and_leave() -> None:
    harness, plugin = cluster()
    plugin.hold("a", "3", "n0")
    plugin.hold("a", "1", "n0")
    assert harness.node("n0").requested["cpu"] == 1000
    plugin.handle.remove_pod("default/held/a")
    plugin.handle.remove_pod("default/held/a")
    assert not harness.node("n0").pods


def test_a_pod_takes_the_place_of_others() -> None:
    harness, plugin = cluster(2)
    plugin.hold("a", "4", "n0")
    plugin.hold("b", "4", "n1")
    assert not harness.schedule(make_pod("p", "1")).node
    node = harness.schedule(make_pod("q", "4", labels={"takes": "1"})).node
    assert harness.node(node).requested["cpu"] == 4000
    harness.scheduler.cache.validate()


def test_what_it_took_the_place_of_is_put_back() -> None:
    harness, plugin = cluster()
    plugin.hold("a", "4", "n0")
    state = CycleState()
    state.replaceable_pods = {"n0": list(harness.node("n0").pods.values())}
    pod = make_pod("p", "4")
    plugin.reserve(state, pod, "n0")
    assert not harness.node("n0").pods
    plugin.unreserve(state, pod, "n0")
    assert harness.node("n0").requested["cpu"] == 4000


def test_a_node_that_only_fits_with_the_others_is_rejected() -> None:
    harness, plugin = cluster(1, Odd)
    plugin.hold("a", "1", "n0")
    assert harness.schedule(make_pod("p", "1")).node == "n0"
    plugin.hold("b", "1", "n0")
    # Three pods are there, and one without those that go.
    assert harness.schedule(make_pod("q", "1", labels={"takes": "1"})).node == "n0"
    plugin.hold("c", "1", "n0")
    outcome = harness.schedule(make_pod("r", "1", labels={"takes": "1"}))
    assert "even" in outcome.message


def test_a_walk_that_ends_early_comes_to_those_nodes_too() -> None:
    harness, plugin = cluster(300, Odd)
    for number in range(300):
        harness.add(make_pod(f"p{number}", node_name=f"n{number}"))
    harness.add(make_pod("more", node_name="n299"))
    plugin.hold("a", "4", "n299")
    outcome = harness.schedule(
        make_pod("q", "4", labels={"takes": "1"}, node_selector={"kubernetes.io/hostname": "n299"})
    )
    assert not outcome.node
    harness.remove("Pod", "more")
    outcome = harness.schedule(
        make_pod("s", "4", labels={"takes": "1"}, node_selector={"kubernetes.io/hostname": "n299"})
    )
    assert outcome.node == "n299"


def test_a_nominated_node_is_looked_at_without_them() -> None:
    harness, plugin = cluster(2)
    plugin.hold("a", "4", "n0")
    status = {"nominatedNodeName": "n0"}
    pod = make_pod("q", "4", labels={"takes": "1"}, status=status)
    assert harness.schedule(pod).node == "n0"


def test_they_are_no_difference_between_store_and_cache() -> None:
    harness, plugin = cluster()
    plugin.hold("a", "1", "n0")
    plugin.hold("b", "9")
    comparer: CacheComparer = harness._cluster.assembly.comparer

    async def checkpoint() -> None:
        return None

    assert harness.run(comparer.differences(checkpoint)) == []


def test_the_name_of_a_provided_pod_needs_a_slash() -> None:
    handle = FakeHandle([make_node("n0")])
    plugin = Placeholders(None, handle)
    plugin.hold("a", "2", "n0")
    changes: list[tuple[Pod | None, Pod | None]] = []
    handle.on_change(PODS, lambda old, new: changes.append((old, new)), with_provided=True)
    before, after = handle.provided["default/held/a"], plugin.hold("a", "1", "n0")
    assert [info.name for info in handle.nodes[0].pods.values()] == ["held/a"]
    assert handle.store(PODS, with_provided=True) == {"default/held/a": after}
    assert not handle.store(PODS)
    assert list(handle.provided_for(make_pod("q", labels={"takes": "1"}))) == ["n0"]
    handle.remove_pod("default/held/a")
    assert not handle.nodes[0].pods
    assert changes == [(None, before), (before, after), (after, None)]
    with pytest.raises(ValueError, match="slash"):
        handle.put_pod(make_pod("plain").pod, plugin)
    harness, placed = cluster()
    with pytest.raises(ValueError, match="slash"):
        placed.handle.put_pod(make_pod("plain").pod, placed)
    assert np.array_equal(harness.nodes.pod_count, [0])


def test_pods_are_provided_only_by_plugins_that_are_there_from_the_start() -> None:
    harness = Harness([], [make_node("n0")])
    handle = harness.scheduler.profiles["default-scheduler"].plugins[0].handle
    handle.put_pod(make_pod("held/a", "1", node_name="n0").pod, None)
    handle.remove_pod("default/held/a")
    assert not harness.node("n0").pods


def test_it_may_preempt_others() -> None:
    harness, plugin = cluster()
    harness.schedule(make_pod("victim", "3"))
    plugin.hold("a", "4", priority=10)
    harness.schedule_all()
    harness.advance(2)
    harness.schedule_all()
    assert "default/victim" not in harness.api.store(PODS)
    assert harness.node("n0").requested["cpu"] == 4000
    assert any(one.reason == "Preempted" for one in harness.events())


def test_other_plugins_are_told_of_it_and_find_it_where_they_ask_for_it() -> None:
    harness, plugin = cluster()
    plugin.hold("a", "1")
    changes: list[tuple[str, str]] = []

    def changed(old: Pod | None, new: Pod | None) -> None:
        before, after = ("-" if one is None else one.spec.node_name for one in (old, new))
        changes.append((before, after))

    plugin.handle.on_change(PODS, changed, with_provided=True)
    plugin.handle.on_change(PODS, lambda old, new: pytest.fail("it is no object of the API"))
    harness.schedule_all()
    plugin.handle.remove_pod("default/held/a")
    assert changes == [("-", ""), ("", "n0"), ("n0", "-")]
    assert "default/held/a" not in plugin.handle.store(PODS, with_provided=True)
    plugin.hold("b", "1")
    assert "default/held/b" in plugin.handle.store(PODS, with_provided=True)
    assert "default/held/b" not in plugin.handle.store(PODS)


def test_what_other_plugins_write_to_it_goes_to_its_plugin() -> None:
    harness, plugin = cluster()
    plugin.hold("a", "1", "n0")
    harness.add(make_pod("real"))
    api, noted = plugin.handle.api, {"metadata": {"annotations": {"noted": "yes"}}}
    assert harness.run(api.patch(PODS, "default", "held/a", noted))["metadata"]["name"] == "held/a"
    harness.run(api.patch(PODS, "default", "held/a", {"status": {"reason": "Held"}}, "status"))
    assert plugin.patches == [noted, {"status": {"reason": "Held"}}]
    assert harness.run(api.get(PODS, "default", "held/a")).spec.node_name == "n0"
    harness.run(api.patch(PODS, "default", "real", noted))
    assert harness.pod("real").metadata.annotations == {"noted": "yes"}


def test_a_plugin_says_for_whom_it_holds_room() -> None:
    plugin = cluster()[1]
    plugin.hold("a", "1", "n0")
    assert not plugin.handle.provided_for(make_pod("p"))
    found = plugin.handle.provided_for(make_pod("q", labels={"takes": "1"}))
    assert {name: pod.name for name, pod in found.items()} == {"n0": "held/a"}


def test_a_deletion_of_it_goes_to_its_plugin() -> None:
    harness, plugin = cluster()
    plugin.hold("a", "1", "n0")
    harness.add(make_pod("real", node_name="n0"))
    harness.run(plugin.handle.api.delete(PODS, "default", "held/a"))
    harness.run(plugin.handle.api.delete(PODS, "default", "real"))
    assert plugin.deleted == ["held/a"]
    assert not harness.node("n0").pods
