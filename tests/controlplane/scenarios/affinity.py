"""InterPodAffinity, within one namespace and across them."""

from __future__ import annotations

from typing import Any

from envtest.kube_client import ApiFailure
from envtest.scenario_cluster import HOST, NAMESPACES, ZONE, ScenarioCluster

Json = dict[str, Any]


def term(labels: Json, key: str = HOST, **more: Any) -> Json:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key, **more}


def near(*terms: Json, **weighted: Json) -> Json:
    return {"podAffinity": _rules(terms, weighted)}


def away(*terms: Json, **weighted: Json) -> Json:
    return {"podAntiAffinity": _rules(terms, weighted)}


def _rules(terms: tuple[Json, ...], weighted: Json) -> Json:
    preferred = [{"weight": int(w[1:]), "podAffinityTerm": one} for w, one in weighted.items()]
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": list(terms),
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }


def _zones(cluster: ScenarioCluster) -> None:
    cluster.node("a-1", 40, "a")
    cluster.node("a-2", 9, "a")
    cluster.node("b-1", 23, "b")
    cluster.node("b-2", 6, "b")
    cluster.node("c-1", 13, "c")


def _namespace(cluster: ScenarioCluster, name: str, **labels: str) -> None:
    """Create a namespace; without a namespace controller it cannot be deleted, so it remains."""
    body = {"metadata": {"name": name, "labels": labels}}
    try:
        cluster.client.create(NAMESPACES, body)
    except ApiFailure as failure:
        if failure.status != 409:
            raise
        cluster.change(f"{NAMESPACES}/{name}", body)


def affinity_across_namespaces(cluster: ScenarioCluster) -> None:
    """Namespaces by name, by label, all, and by a label that is added later."""
    _zones(cluster)
    _namespace(cluster, "across-red", team="red")
    _namespace(cluster, "across-blue", team="blue")
    cluster.pod("db", namespace="across-red", on="b-2", labels={"app": "db"})
    cluster.pod("db", namespace="across-blue", on="c-1", labels={"app": "db"})
    cluster.settle()
    db = {"app": "db"}
    blue = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
    late = {"namespaceSelector": {"matchLabels": {"team": "late"}}}
    red = {"namespaces": ["across-red"]}
    cluster.place("own", affinity=near(term(db)))
    cluster.place("red", affinity=near(term(db, **red)))
    cluster.place("blue", affinity=near(term(db, **blue)))
    cluster.place("red-zone", affinity=near(term(db, ZONE, **red)))
    cluster.place("blue-or-red", affinity=near(term(db, ZONE, **blue, **red)))
    cluster.place("none", affinity=away(term(db, ZONE, namespaceSelector={})))
    cluster.place("late", affinity=near(term(db, **late)))
    cluster.refused("own", "didn't match pod affinity rules")
    cluster.refused("late", "didn't match pod affinity rules")
    cluster.note("one namespace is not labelled yet")
    cluster.change(f"{NAMESPACES}/across-red", {"metadata": {"labels": {"team": "late"}}})
    cluster.settle()
    # Such labels wake no pod in kube-scheduler (docs/parity.md), a new node does.
    cluster.node("fresh", 1, "b")
    cluster.bound(red="b-2", blue="c-1", late="b-2", none="a-1")
    cluster.bound(**{"red-zone": "b-1"})


def pods_keep_others_away(cluster: ScenarioCluster) -> None:
    """Anti-affinity of existing pods rejects incoming pods, across namespaces too."""
    _zones(cluster)
    _namespace(cluster, "away-guests")
    everywhere = {"namespaceSelector": {}}
    alone = away(term({"app": "web"}, ZONE, **everywhere))
    cluster.pod("web", on="a-2", labels={"app": "web"}, affinity=alone)
    cluster.settle()
    guest = {"namespace": "away-guests", "labels": {"app": "web"}}
    cluster.place("first", **guest)
    cluster.place("second", **guest, affinity=alone)
    cluster.place("third", **guest, affinity=away(term({"app": "web"}, **everywhere)))
    cluster.place("fourth", **guest, affinity=alone)
    cluster.place("other", namespace="away-guests", labels={"app": "other"})
    cluster.refused("away-guests/fourth", "anti-affinity")
    cluster.note("no zone is free")
    cluster.end("web")
    cluster.decided("away-guests/fourth")
    cluster.place("labelled", labels={"app": "web"}, nodeSelector={ZONE: "c"})


def first_pod_of_a_group_may_go_anywhere(cluster: ScenarioCluster) -> None:
    """A pod that matches its own affinity may be the first of a group; the others follow it."""
    _zones(cluster)
    cluster.node("no-zone", 90)
    cluster.change_node("no-zone", {"metadata": {"labels": {ZONE: None}}})
    cluster.settle()
    group = {"labels": {"app": "group"}, "affinity": near(term({"app": "group"}, ZONE))}
    for name in ("one", "two", "three"):
        cluster.place(name, **group)
    cluster.place("stranger", affinity=near(term({"app": "strange"}, ZONE)))
    cluster.refused("stranger", "0/6 nodes are available")
    cluster.bound(one="a-1", two="a-1", three="a-1")
    cluster.pod("strange", on="b-2", labels={"app": "strange"})
    cluster.bound(stranger="b-1")


def preferences_between_pods_are_weighed(cluster: ScenarioCluster) -> None:
    """Preferred terms of incoming and of existing pods add up, with their weights."""
    _zones(cluster)
    likes_web = near(w50=term({"app": "web"}, ZONE))
    hates_noise = away(w80=term({"app": "noise"}))
    cluster.pod("db", on="b-2", labels={"app": "db"}, affinity=likes_web)
    cluster.pod("quiet", on="a-1", labels={"app": "quiet"}, affinity=hates_noise)
    cluster.pod("needs", on="c-1", labels={"app": "db"}, affinity=near(term({"app": "db"}, ZONE)))
    cluster.settle()
    cluster.place("web", labels={"app": "web"})
    cluster.place("noise", labels={"app": "noise"})
    cluster.place("mixed", affinity=near(w10=term({"app": "db"}, ZONE), w30=term({"app": "quiet"})))
    cluster.place("away", affinity=away(w100=term({"app": "quiet"}, ZONE)))
    cluster.place("pulled", labels={"app": "db"})


def label_keys_narrow_the_terms(cluster: ScenarioCluster) -> None:
    """The apiserver merges matchLabelKeys and mismatchLabelKeys into the selectors."""
    _zones(cluster)
    cluster.settle()
    for version in ("1", "2"):
        keys = {"matchLabelKeys": ["version"]}
        for number in range(3):
            labels = {"app": "web", "version": version}
            rules = away(term({"app": "web"}, ZONE, **keys))
            cluster.place(f"v{version}-{number}", labels=labels, affinity=rules)
    tenants = {"mismatchLabelKeys": ["tenant"]}
    tenant = {"labelSelector": {"matchExpressions": [{"key": "tenant", "operator": "Exists"}]}}
    for index, name in enumerate(("x", "x", "y", "y", "z", "w")):
        rules = away({**tenant, **tenants, "topologyKey": ZONE})
        cluster.place(f"tenant-{index}", labels={"tenant": name}, affinity=rules)
    cluster.refused("tenant-5", "anti-affinity")


SCENARIOS = (
    affinity_across_namespaces,
    pods_keep_others_away,
    first_pod_of_a_group_may_go_anywhere,
    preferences_between_pods_are_weighed,
    label_keys_narrow_the_terms,
)
