"""An extender of the default profile, with the verbs filter, prioritize, preempt and bind."""

from __future__ import annotations

from envtest.fake_extender import RESOURCE
from envtest.scenario_cluster import ScenarioCluster

ASKS = {"limits": {RESOURCE: "1"}}


def an_extender_has_its_say(cluster: ScenarioCluster) -> None:
    """It is called only for pods that request its managed resource."""
    cluster.node("lost", 60)
    cluster.node("kept", 30)
    cluster.node("kept-best", 10)
    cluster.settle()
    cluster.place("ordinary")
    cluster.place("swayed", **ASKS)
    cluster.place("too-big", "20", **ASKS)
    cluster.place("much-too-big", "40", **ASKS)
    cluster.place("nowhere", nodeSelector={"disk": "tape"}, **ASKS)
    cluster.bound(ordinary="lost", swayed="kept-best", **{"too-big": "kept"})
    cluster.refused("much-too-big", "it is a lost one")


def an_extender_strikes_out_victims(cluster: ScenarioCluster) -> None:
    """It rejects the node that preemption would choose."""
    cluster.node("lost", 4)
    cluster.node("kept", 5)
    cluster.pod("cheap", "4", on="lost", priority="low")
    cluster.pod("dear", "5", on="kept", priority="middle")
    cluster.settle()
    cluster.place("preemptor", "3", priority="high", **ASKS)
    cluster.leaving("dear")
    cluster.settle()
    cluster.note("the more important victim is deleted")
    cluster.end("dear")
    cluster.bound(preemptor="kept")


SCENARIOS = (an_extender_has_its_say, an_extender_strikes_out_victims)
