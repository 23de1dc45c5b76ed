"""InterPodAffinity, within one namespace and across them."""

from __future__ import annotations

from typing import Any

from testground.kube_client import ApiFailure
from testground.stage import HOST, NAMESPACES, ZONE, Stage

Json = dict[str, Any]


def term(labels: Json, key: str = HOST, **more: Any) -> Json:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key, **more}


def near(*terms: Json, **weighted: Json) -> Json:
    return {"podAffinity": _rules(terms, weighted)}


def away(*terms: Json, **weighted: Json) -> Json:
    return {"podAntiAffinity": _rules(terms, weighted)}


def _rules(terms: tuple[Json, ...], weighted: Json) -> Json:
    wishes = [{"weight": int(w[1:]), "podAffinityTerm": one} for w, one in weighted.items()]
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": list(terms),
        "preferredDuringSchedulingIgnoredDuringExecution": wishes,
    }


def _zones(stage: Stage) -> None:
    stage.node("a-1", 40, "a")
    stage.node("a-2", 9, "a")
    stage.node("b-1", 23, "b")
    stage.node("b-2", 6, "b")
    stage.node("c-1", 13, "c")


def _namespace(stage: Stage, name: str, **labels: str) -> None:
    """Have a namespace: nobody finishes the deletion of one here, so it outlives its scenario."""
    body = {"metadata": {"name": name, "labels": labels}}
    try:
        stage.client.create(NAMESPACES, body)
    except ApiFailure as failure:
        if failure.status != 409:
            raise
        stage.change(f"{NAMESPACES}/{name}", body)


def affinity_across_namespaces(stage: Stage) -> None:
    """Namespaces are chosen by name, by label, all of them, and by a label that comes later."""
    _zones(stage)
    _namespace(stage, "across-red", team="red")
    _namespace(stage, "across-blue", team="blue")
    stage.pod("db", namespace="across-red", on="b-2", labels={"app": "db"})
    stage.pod("db", namespace="across-blue", on="c-1", labels={"app": "db"})
    stage.settle()
    db = {"app": "db"}
    blue = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
    late = {"namespaceSelector": {"matchLabels": {"team": "late"}}}
    red = {"namespaces": ["across-red"]}
    stage.place("own", affinity=near(term(db)))
    stage.place("red", affinity=near(term(db, **red)))
    stage.place("blue", affinity=near(term(db, **blue)))
    stage.place("red-zone", affinity=near(term(db, ZONE, **red)))
    stage.place("blue-or-red", affinity=near(term(db, ZONE, **blue, **red)))
    stage.place("none", affinity=away(term(db, ZONE, namespaceSelector={})))
    stage.place("late", affinity=near(term(db, **late)))
    stage.refused("own", "didn't match pod affinity rules")
    stage.refused("late", "didn't match pod affinity rules")
    stage.note("one namespace is not labelled yet")
    stage.change(f"{NAMESPACES}/across-red", {"metadata": {"labels": {"team": "late"}}})
    stage.settle()
    stage.note("labels of a namespace wake nobody")
    stage.node("fresh", 1, "b")
    stage.bound(red="b-2", blue="c-1", late="b-2", none="a-1")
    stage.bound(**{"red-zone": "b-1"})


def pods_keep_others_away(stage: Stage) -> None:
    """Those that are there refuse those that come, across namespaces too."""
    _zones(stage)
    _namespace(stage, "away-guests")
    everywhere = {"namespaceSelector": {}}
    alone = away(term({"app": "web"}, ZONE, **everywhere))
    stage.pod("web", on="a-2", labels={"app": "web"}, affinity=alone)
    stage.settle()
    guest = {"namespace": "away-guests", "labels": {"app": "web"}}
    stage.place("first", **guest)
    stage.place("second", **guest, affinity=alone)
    stage.place("third", **guest, affinity=away(term({"app": "web"}, **everywhere)))
    stage.place("fourth", **guest, affinity=alone)
    stage.place("other", namespace="away-guests", labels={"app": "other"})
    stage.refused("away-guests/fourth", "anti-affinity")
    stage.note("no zone is free")
    stage.end("web")
    stage.decided("away-guests/fourth")
    stage.place("labelled", labels={"app": "web"}, nodeSelector={ZONE: "c"})


def first_pod_of_a_group_may_go_anywhere(stage: Stage) -> None:
    """A pod that its own affinity matches starts the group; the others follow it."""
    _zones(stage)
    stage.node("no-zone", 90)
    stage.change_node("no-zone", {"metadata": {"labels": {ZONE: None}}})
    stage.settle()
    group = {"labels": {"app": "group"}, "affinity": near(term({"app": "group"}, ZONE))}
    for name in ("one", "two", "three"):
        stage.place(name, **group)
    stage.place("stranger", affinity=near(term({"app": "strange"}, ZONE)))
    stage.refused("stranger", "0/6 nodes are available")
    stage.bound(one="a-1", two="a-1", three="a-1")
    stage.pod("strange", on="b-2", labels={"app": "strange"})
    stage.bound(stranger="b-1")


def preferences_between_pods_are_weighed(stage: Stage) -> None:
    """Wishes of those that come and of those that are there add up, with their weights."""
    _zones(stage)
    likes_web = near(w50=term({"app": "web"}, ZONE))
    hates_noise = away(w80=term({"app": "noise"}))
    stage.pod("db", on="b-2", labels={"app": "db"}, affinity=likes_web)
    stage.pod("quiet", on="a-1", labels={"app": "quiet"}, affinity=hates_noise)
    stage.pod("needs", on="c-1", labels={"app": "db"}, affinity=near(term({"app": "db"}, ZONE)))
    stage.settle()
    stage.place("web", labels={"app": "web"})
    stage.place("noise", labels={"app": "noise"})
    stage.place("mixed", affinity=near(w10=term({"app": "db"}, ZONE), w30=term({"app": "quiet"})))
    stage.place("away", affinity=away(w100=term({"app": "quiet"}, ZONE)))
    stage.place("pulled", labels={"app": "db"})


def label_keys_narrow_the_terms(stage: Stage) -> None:
    """With matchLabelKeys and mismatchLabelKeys the apiserver completes the selectors."""
    _zones(stage)
    stage.settle()
    for version in ("1", "2"):
        keys = {"matchLabelKeys": ["version"]}
        for number in range(3):
            labels = {"app": "web", "version": version}
            rules = away(term({"app": "web"}, ZONE, **keys))
            stage.place(f"v{version}-{number}", labels=labels, affinity=rules)
    tenants = {"mismatchLabelKeys": ["tenant"]}
    tenant = {"labelSelector": {"matchExpressions": [{"key": "tenant", "operator": "Exists"}]}}
    for index, name in enumerate(("x", "x", "y", "y", "z", "w")):
        rules = away({**tenant, **tenants, "topologyKey": ZONE})
        stage.place(f"tenant-{index}", labels={"tenant": name}, affinity=rules)
    stage.refused("tenant-5", "anti-affinity")


SCENARIOS = (
    affinity_across_namespaces,
    pods_keep_others_away,
    first_pod_of_a_group_may_go_anywhere,
    preferences_between_pods_are_weighed,
    label_keys_narrow_the_terms,
)
