"""An extender in the default profile: it narrows the choice, sways it, and binds."""

from __future__ import annotations

from testground.fake_extender import RESOURCE
from testground.stage import Stage

ASKS = {"limits": {RESOURCE: "1"}}


def an_extender_has_its_say(stage: Stage) -> None:
    """Only for the pods that ask for what it manages."""
    stage.node("lost", 60)
    stage.node("kept", 30)
    stage.node("kept-best", 10)
    stage.settle()
    stage.place("ordinary")
    stage.place("swayed", **ASKS)
    stage.place("too-big", "20", **ASKS)
    stage.place("much-too-big", "40", **ASKS)
    stage.place("nowhere", nodeSelector={"disk": "tape"}, **ASKS)
    stage.bound(ordinary="lost", swayed="kept-best", **{"too-big": "kept"})
    stage.refused("much-too-big", "it is a lost one")


def an_extender_strikes_out_victims(stage: Stage) -> None:
    """The node that would be the best to clear is not one that it would take."""
    stage.node("lost", 4)
    stage.node("kept", 5)
    stage.pod("cheap", "4", on="lost", priority="low")
    stage.pod("dear", "5", on="kept", priority="middle")
    stage.settle()
    stage.place("preemptor", "3", priority="high", **ASKS)
    stage.leaving("dear")
    stage.settle()
    stage.note("the dear one leaves")
    stage.end("dear")
    stage.bound(preemptor="kept")


SCENARIOS = (an_extender_has_its_say, an_extender_strikes_out_victims)
