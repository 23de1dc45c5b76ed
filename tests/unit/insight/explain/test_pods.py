"""What is said of a pod, whatever has become of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proreus.insight.explain import PodExplanation

from .conftest import World, node, pod


def test_a_placed_pod(world: World) -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    world.add(node("a"), node("b", cpu="8"), node("c", cpu="16"), node("d", taints=[taint]))
    world.schedule(pod("p", cpu="1"))

    explained = world.explain("p")
    assert (explained.state, explained.node) == ("bound", "c")
    placement = explained.attempt.placement
    assert placement.feasible == 3
    assert [scored.name for scored in placement.nodes] == ["c", "b", "a"]
    assert placement.margin == placement.nodes[0].total - placement.nodes[1].total
    for scored in placement.nodes:
        assert scored.total == sum(plugin.weighted for plugin in scored.plugins)
        assert all(p.weighted == p.weight * p.normalized for p in scored.plugins)
    fit = next(p for p in placement.nodes[0].plugins if p.plugin == "NodeResourcesFit")
    assert fit.raw == fit.normalized > 90
    (rejected,) = explained.attempt.rejected
    assert (rejected.plugin, rejected.count, rejected.names) == ("TaintToleration", 1, ("d",))
    assert "the best of 3 nodes" in explained.summary
    decided = [one.plugin for one in placement.left_out if one.decided]
    assert decided == [], "both plugins that differ prefer c"
    without_fit = next(one for one in placement.left_out if one.plugin == "NodeResourcesFit")
    assert "c" in without_fit.best


def test_the_plugin_that_decided(world: World) -> None:
    world.add(node("a", cpu="16"), node("b", cpu="8", disk="ssd"))
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    preferred = [{"weight": 100, "preference": term}]
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    world.schedule(pod("p", cpu="1", affinity={"nodeAffinity": affinity}))

    placement = world.explain("p").attempt.placement
    assert placement.node == "b"
    decided = {one.plugin: one.best for one in placement.left_out if one.decided}
    assert decided == {"NodeAffinity": ("a",)}


def test_a_waiting_pod_and_what_would_help(world: World) -> None:
    world.add(node("a"), node("b", cpu="2"))
    world.schedule(pod("old", cpu="1"))
    world.schedule(pod("large", cpu="6"))

    explained = world.explain("large")
    assert explained.state == "waiting"
    waiting = explained.waiting
    assert waiting.queue == "unschedulable"
    assert waiting.rejected_by == ("NodeResourcesFit",)
    assert any(event.event.startswith("NodeAdd") and event.hinted for event in waiting.events)
    assert waiting.retried_without_event_at == pytest.approx(waiting.since + 300)
    on_a = explained.help.nodes[0]
    (change,) = on_a.changes
    free = {"a": "4", "b": "2"}
    on = world.explain("old").node
    free[on] = str(int(free[on]) - 1)
    assert change.after == free[on_a.node]
    assert change.minimal
    assert explained.help.new_node_like == ""


def test_a_new_node_would_help(world: World) -> None:
    world.add(node("a"))
    world.schedule(pod("old", cpu="3"))
    world.schedule(pod("new", cpu="3"))
    assert world.explain("new").help.new_node_like == "a"


def test_a_gated_pod(world: World) -> None:
    world.add(node("a"))
    world.schedule(pod("p", schedulingGates=[{"name": "example.com/quota"}]))
    explained = world.explain("p")
    assert explained.waiting.queue == "gated"
    assert explained.waiting.scheduling_gates == ("example.com/quota",)
    assert "example.com/quota" in explained.summary
    assert explained.help is None


def test_the_active_queue_and_back_off(world: World) -> None:
    world.add(node("a"))
    world.add(pod("first", priority=10), pod("second"))
    waiting = world.explain("second").waiting
    assert (waiting.queue, waiting.position, waiting.ahead) == ("active", 2, ("default/first",))
    assert world.explainer.queue().next == ("default/first", "default/second")


def test_pods_that_are_not_ours_or_not_there(world: World) -> None:
    world.add(node("a"), pod("other", schedulerName="elsewhere"))
    assert world.explain("other").state == "notOurs"
    assert "elsewhere" in world.explain("other").summary
    assert world.explain("nobody").state == "unknown"
    world.add(pod("bound", nodeName="a"))
    explained = world.explain("bound")
    assert (explained.state, explained.node, explained.attempt) == ("bound", "a", None)


def test_a_deleted_pod_is_still_in_the_record(world: World) -> None:
    world.add(node("a"))
    world.schedule(pod("p"))
    world.cluster.api.remove("Pod", "default/p")
    explained = world.explain("p")
    assert (explained.state, explained.node) == ("deleted", "a")
    again = pod("p")
    again["metadata"]["uid"] = "another"
    again["spec"]["schedulingGates"] = [{"name": "g"}]
    world.add(again)
    assert world.explain("p").attempt is None, "the record is of another pod of this name"


def test_a_preemptor_and_its_victims(world: World) -> None:
    world.add(node("a", cpu="2"))
    world.schedule(pod("victim", cpu="2"))
    world.schedule(pod("important", cpu="2", priority=100))
    record = world.recorder.records.latest("default/important")
    assert record is not None
    explained = world.explain("important")
    first = explained.attempt
    if explained.state == "bound":  # the victim is gone at once offline
        first = world.explainer.pod("default", "important").attempt
        assert explained.earlier_attempts == 1
        (record,) = [r for r in world.recorder.records.of("default/important") if r.failure]
        assert record.failure.nominated_node == "a"
        assert [victim.pod for victim in record.failure.victims] == ["default/victim"]
    else:
        assert first.nominated_node == "a"
        assert [victim.pod for victim in first.victims] == ["default/victim"]


def test_nodes_and_the_queue(world: World) -> None:
    world.add(node("a", cpu="2"))
    world.schedule(pod("on", cpu="1"))
    world.schedule(pod("large", cpu="4"), pod("larger", cpu="5"))
    explained = world.explainer.node("a")
    cpu = next(one for one in explained.resources if one.name == "cpu")
    assert (cpu.allocatable, cpu.requested, cpu.free) == (2000, 1000, 1000)
    (rejects,) = explained.rejects
    assert (rejects.plugin, rejects.count) == ("NodeResourcesFit", 2)
    assert not world.explainer.node("z").known

    queue = world.explainer.queue()
    assert queue.counts["unschedulable"] == 2
    (reason,) = queue.reasons
    assert (reason.plugins, reason.count) == (("NodeResourcesFit",), 2)
    assert not queue.starving


def test_explanations_are_plain_values(world: World) -> None:
    world.add(node("a"), node("b"))
    world.schedule(pod("p"), pod("large", cpu="99"))
    for name in ("p", "large"):
        explained = world.explain(name)
        data: Any = msgspec.json.encode(explained)
        assert msgspec.json.decode(data, type=PodExplanation) == explained
