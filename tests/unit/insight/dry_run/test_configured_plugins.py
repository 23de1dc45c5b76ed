"""Extenders, plugins that cannot be asked, and plugins of one's own."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from proreus.config.load import load
from proreus.engine.runtime.select_host import NodeScores
from proreus.framework.plugin import FetchingPlugin, FilterPlugin
from proreus.framework.status import Status
from proreus.objects.kinds import PODS
from proreus.offline.cluster import OfflineOptions

from .conftest import node, pod

EXTENDER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
  - {urlPrefix: "http://127.0.0.1:1/e", filterVerb: filter}
"""


class OnlyEndingWithOne:
    """An extender that keeps the nodes whose name ends with 1."""

    asked = 0

    async def post(self, verb: str, body: bytes, *, repeatable: bool = True) -> bytes:
        type(self).asked += 1
        items = msgspec.json.decode(body)["Nodes"]["items"]
        kept = [one for one in items if one["metadata"]["name"].endswith("1")]
        return msgspec.json.encode({"Nodes": {"items": kept}, "FailedNodes": {}})

    async def close(self) -> None:
        pass


def test_extenders_are_asked_by_choice(make_world: Any) -> None:
    options = OfflineOptions(
        use_extenders=True, extender_transport=lambda config: OnlyEndingWithOne()
    )
    configure = lambda registry, gates: load(EXTENDER, registry, gates)  # noqa: E731
    world = make_world(configure=configure, options=options)
    world.add(node("n0"), node("n1"), node("n2"))
    OnlyEndingWithOne.asked = 0
    answer = world.ask(pod("p"), nodeNames=10)
    assert (answer.pods[0].feasible_nodes, OnlyEndingWithOne.asked) == (3, 0)
    template = {"name": "new", "count": 2, "node": node("any")}
    answer = world.ask(pod("p"), nodeNames=10, nodeTemplates=[template], includeExtenders=True)
    assert sorted(answer.pods[0].feasible_node_names) == ["n1", "new-1"]
    assert OnlyEndingWithOne.asked == 1
    # The next one does without them again.
    assert world.ask(pod("p")).pods[0].feasible_nodes == 3


class Remote(FetchingPlugin, FilterPlugin):
    """Rejects everything, and cannot be asked without waiting."""

    name = "Remote"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return Status.unschedulable("remote")


class Writing(FilterPlugin):
    """Rejects pods once it has written something."""

    name = "Writing"

    def __init__(self, args: Any, handle: Any) -> None:
        self._handle = handle
        self._nodes = handle.nodes

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        if node.name not in self._nodes:
            return Status.unschedulable("the node is not in the handle's table")
        self._handle.activate([pod.key])
        return None


def enabling(name: str) -> Any:
    text = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}}}
"""
    return lambda registry, gates: load(text, registry, gates)


def test_plugins_that_fetch_their_results_are_left_out_and_named(make_world: Any) -> None:
    world = make_world(plugins=(Remote,), configure=enabling("Remote"))
    world.add(node("a"))
    answer = world.ask(pod("p"))
    assert answer.all_fit
    assert answer.plugins_left_out == ("Remote",)


def test_a_plugin_sees_the_nodes_that_were_added(make_world: Any) -> None:
    world = make_world(plugins=(Writing,), configure=enabling("Writing"))
    template = {"name": "new", "node": node("any")}
    assert world.ask(pod("p"), nodeTemplates=[template]).pods[0].node == "new-0"


def first_of_the_best(totals: NodeScores, order: Any) -> int:
    """Choose without chance, so that two runs can be compared."""
    return int(np.argmax(totals.scores))


def test_decisions_are_those_of_the_scheduler(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where pods really go, one after another, is where a dry run said they would."""
    monkeypatch.setattr(
        "proreus.insight.dry_run.environment.at_random", lambda rng: first_of_the_best
    )
    world = make_world(options=OfflineOptions(select_host=first_of_the_best))
    # In the order of their names: rows of the copy are those of the cluster then.
    world.add(*(node(f"n{cpu}", cpu=cpu) for cpu in "1234567"))
    wanted = [pod(f"p{number}", cpu=f"{700 * (number % 4) + 300}m") for number in range(20)]
    said = {one.pod: one.node for one in world.ask(*wanted).pods}
    assert "" in said.values()
    for one in wanted:
        world.schedule(one)
    pods = world.cluster.api.store(PODS)
    assert said == {key: pods[key].spec.node_name for key in said}
