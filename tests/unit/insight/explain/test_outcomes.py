"""What is said of extenders, of a pod that Permit holds, of its binding, and of victims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from proreus.base.errors import ApiError
from proreus.framework import PermitPlugin, Status
from proreus.process.cli.explain.tables import tables_of

from .conftest import World, node, pod

URL, OTHER = "http://first.example", "http://second.example"


def configuration(*extenders: dict[str, Any], enabled: tuple[str, ...] = ()) -> dict[str, Any]:
    plugins = {"multiPoint": {"enabled": [{"name": name} for name in enabled]}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
        "extenders": list(extenders),
    }


def extender(url: str, **more: Any) -> dict[str, Any]:
    return {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 2,
        "nodeCacheCapable": True,
        **more,
    }


class Holds(PermitPlugin):
    """Holds every pod for a minute."""

    seconds = 60

    def permit(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return Status.wait(self.seconds)


class HoldsLonger(Holds):
    """The same for ten minutes."""

    seconds = 600


def text_of(explanation: Any) -> str:
    console = Console(width=250)
    with console.capture() as captured:
        for part in tables_of(explanation):
            console.print(part)
    return captured.get()


# ---- extenders ---------------------------------------------------------------------------------


def test_which_extender_rejected_which_nodes_and_how_it_scored_the_others(
    make_world: Callable[..., World],
) -> None:
    behaviours = {
        URL: {
            "filter": {"failed": {"a": "no licence"}, "unresolvable": {"b": "wrong site"}},
            "prioritize": {"scores": {"c": 1, "d": 9}},
        },
        OTHER: {"filter": {"failed": {"e": "busy", "f": "busy"}}, "prioritize": {"status": 500}},
    }
    world = make_world(
        configuration=configuration(extender(URL), extender(OTHER)), extenders=behaviours
    )
    world.add(*(node(name) for name in "abcdef"))
    world.schedule(pod("p"))

    explained = world.explain("p")
    assert explained.node == "d"
    first, second, scores, failed = explained.attempt.extenders
    assert (first.url, first.verb, first.accepted) == (URL, "filter", 4)
    assert [(one.message, one.names, one.unresolvable) for one in first.rejected] == [
        ("wrong site", ("b",), True),
        ("no licence", ("a",), False),
    ]
    assert (second.url, second.accepted) == (OTHER, 2)
    assert [(one.message, one.count, one.names) for one in second.rejected] == [
        ("busy", 2, ("e", "f"))
    ]
    assert (scores.url, scores.verb, scores.scored, scores.error) == (URL, "prioritize", 2, "")
    assert (failed.url, failed.scored) == (OTHER, 0)
    assert "500" in failed.error
    # 10 is the highest score of an extender, 100 that of a plugin; the weight is 2.
    added = {
        scored.name: next(one.weighted for one in scored.plugins if one.plugin == URL)
        for scored in explained.attempt.placement.nodes
    }
    assert added == {"c": 20, "d": 180}
    for scored in explained.attempt.placement.nodes:
        assert scored.total == sum(one.weighted for one in scored.plugins)
    assert explained.attempt.placement.margin == 160
    decided = [one.plugin for one in explained.attempt.placement.left_out if one.decided]
    assert decided == [] or decided == [URL], "without it c and d are equal"
    rejected = {(one.plugin, one.reasons): one.names for one in explained.attempt.rejected}
    assert rejected[("Extender", ("busy",))] == ("e", "f")
    text = text_of(explained)
    assert "rejected 2 (e, f): busy" in text
    assert "scored 2 nodes" in text


def test_a_pod_that_an_extender_keeps_from_all_nodes(make_world: Callable[..., World]) -> None:
    behaviours = {URL: {"filter": {"failed": {"a": "no licence", "b": "no licence"}}}}
    world = make_world(configuration=configuration(extender(URL)), extenders=behaviours)
    world.add(node("a"), node("b"))
    world.schedule(pod("p"))
    explained = world.explain("p")
    assert explained.state == "waiting"
    (reply,) = explained.attempt.extenders
    assert (reply.url, reply.accepted) == (URL, 0)
    assert [(one.message, one.count) for one in reply.rejected] == [("no licence", 2)]


def test_an_extender_that_does_not_answer(make_world: Callable[..., World]) -> None:
    behaviours = {URL: {"filter": {"error": "out of order"}}}
    world = make_world(configuration=configuration(extender(URL)), extenders=behaviours)
    world.add(node("a"), node("b"))
    world.schedule(pod("p"))
    (reply,) = world.explain("p").attempt.extenders
    assert (reply.url, reply.verb) == (URL, "filter")
    assert "out of order" in reply.error
    assert "error: " in text_of(world.explain("p"))


# ---- Permit and binding ------------------------------------------------------------------------


def holding(make_world: Callable[..., World]) -> World:
    world = make_world(
        plugins=(Holds, HoldsLonger), configuration=configuration(enabled=("Holds", "HoldsLonger"))
    )
    world.add(node("a"), node("b"))
    world.schedule(pod("p"))
    return world


def test_names_the_plugin_that_holds_a_pod_in_permit_with_its_times(
    make_world: Callable[..., World],
) -> None:
    world = holding(make_world)
    now = world.cluster.clock.now()
    explained = world.explain("p")
    assert (explained.state, explained.binding_point) == ("binding", "Permit")
    holds = {hold.plugin: hold for hold in explained.permit}
    assert holds.keys() == {"Holds", "HoldsLonger"}
    assert holds["Holds"].since == pytest.approx(now, abs=0.1)
    assert holds["Holds"].until == pytest.approx(now + 60, abs=0.1)
    assert holds["HoldsLonger"].until == pytest.approx(now + 600, abs=0.1)
    assert "Held by: Holds since" in text_of(explained)

    waiting = next(iter(world.scheduler.waiting_pods))
    waiting.allow("Holds")
    explained = world.explain("p")
    assert [hold.plugin for hold in explained.permit if not hold.allowed] == ["HoldsLonger"]
    assert [hold.plugin for hold in explained.permit if hold.allowed] == ["Holds"]

    world.cluster.advance(5)
    waiting.allow("HoldsLonger")
    world.settle()
    explained = world.explain("p")
    assert explained.state == "bound"
    assert explained.permit == ()
    assert explained.attempt.bound_at == pytest.approx(now + 5, abs=0.1)
    for hold in explained.attempt.permit:
        assert hold.ended_at - hold.since == pytest.approx(5)
    assert "Was held by: Holds" in text_of(explained)


def test_a_pod_that_permit_rejected(make_world: Callable[..., World]) -> None:
    world = holding(make_world)
    next(iter(world.scheduler.waiting_pods)).reject("Holds", "not today")
    world.settle()
    explained = world.explain("p")
    attempt = explained.attempt
    assert (explained.state, attempt.failed_point) == ("waiting", "Permit")
    assert (attempt.plugins, attempt.bound_at) == (("Holds",), None)
    assert "not today" in attempt.message
    assert attempt.placement.node in ("a", "b")


def test_a_binding_that_failed_and_one_that_did_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(node("a"))

    async def fails(*args: Any, **options: Any) -> None:
        raise ApiError(409, "Conflict", "the object has been modified")

    with monkeypatch.context() as patched:
        patched.setattr(world.cluster.api, "bind", fails)
        world.schedule(pod("p"))
    attempt = world.explain("p").attempt
    assert (attempt.failed_point, attempt.bound_at) == ("Bind", None)
    assert attempt.placement.node == "a"
    assert "the object has been modified" in attempt.message
    assert "in Bind: " in text_of(world.explain("p"))

    world.schedule(pod("q"))
    attempt = world.explain("q").attempt
    assert (attempt.failed_point, attempt.message) == ("", "")
    assert attempt.bound_at == pytest.approx(world.cluster.clock.now(), abs=0.1)


# ---- victims -----------------------------------------------------------------------------------


def test_why_each_victim_has_to_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_slow(*args: Any, **options: Any) -> None:
        """The apiserver has not deleted it yet."""

    monkeypatch.setattr(world.cluster.api, "delete_pod", is_slow)
    world.add(node("a", cpu="4"))
    port = {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}
    cpu = {"resources": {"requests": {"cpu": "100m"}}}
    world.schedule(pod("port", c={**port, **cpu}), pod("cpu", cpu="3"), pod("harmless"))
    large = {"resources": {"requests": {"cpu": "3500m"}}}
    world.schedule(pod("important", c={**port, **large}, priority=100))

    explained = world.explain("important")
    assert explained.state == "waiting"
    reasons = {victim.pod: victim.reason for victim in explained.attempt.victims}
    assert reasons.keys() == {"default/port", "default/cpu"}
    assert "NodePorts" in reasons["default/port"]
    assert "Insufficient cpu (NodeResourcesFit)" in reasons["default/cpu"]
    assert all("priority 0, lower" in reason for reason in reasons.values())

    world.cluster.api.remove("Pod", "default/port")
    reasons = {victim.pod: victim for victim in world.explain("important").attempt.victims}
    assert reasons["default/port"].state == "gone"
    assert "beside it" not in reasons["default/port"].reason
    assert "Insufficient cpu" in reasons["default/cpu"].reason
