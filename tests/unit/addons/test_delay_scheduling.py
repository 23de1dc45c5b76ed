"""DelayScheduling: levels, budgets, who is exempt, and what wakes a pod that waits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from proreus.addons.coscheduling import Coscheduling
from proreus.addons.delay_scheduling import DelayScheduling
from proreus.addons.delay_scheduling import sources as sources_module
from proreus.framework import ConfigError
from proreus.objects import LABEL_ZONE
from proreus.testing import FakeHandle, Harness, make_node, make_plugin, make_pod

RACK = "example.com/rack"
THREE_LEVELS = {
    "levels": [
        {"name": "node", "key": "nodeName"},
        {"name": "rack", "key": RACK},
        {"name": "zone", "key": LABEL_ZONE},
    ],
    "skips": [2, 2, 2],
    "waitSeconds": [],
}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}


def node(name: str, rack: str = "r1", zone: str = "z1", **more: Any):
    return make_node(name, "4", labels={RACK: rack, LABEL_ZONE: zone}, **more)


def prefers(name: str, *nodes: str, cpu: str = "1", owner: str = "", **more: Any):
    metadata: dict[str, Any] = {"annotations": {"proreus.dev/prefer-nodes": ",".join(nodes)}}
    if owner:
        controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner}
        metadata["ownerReferences"] = [{**controller, "controller": True}]
    metadata.update(more.pop("metadata", {}))
    return make_pod(name, cpu, metadata=metadata, **more)


def busy(on: str, name: str = "busy", cpu: str = "4"):
    return make_pod(name, cpu, node_name=on)


def cluster_of(nodes, objects=(), **args: Any) -> Harness:
    return Harness([DelayScheduling], nodes, objects, args={"DelayScheduling": args})


def skip_all(cluster: Harness, name: str, most: int = 60) -> list[str]:
    """Offer opportunities until the pod is bound; return the reasons for which it waited."""
    reasons = []
    for _ in range(most):
        outcome = cluster.outcome(name)
        if outcome.bound:
            return reasons
        _, _, rest = outcome.message.partition("waiting for locality ")
        reasons.append(rest.partition(")")[0] + ")")
        cluster.advance(0.6)
        cluster.schedule_all()
    raise AssertionError(f"{name} still waits: {outcome.message}")


# ---- the rule ------------------------------------------------------------------------------------


def test_a_pod_without_preference_passes() -> None:
    cluster = cluster_of([node("a")])
    assert cluster.schedule(make_pod("p", "1")).node == "a"


def test_only_the_feasible_preferred_nodes_are_left() -> None:
    cluster = cluster_of([node("a"), node("b"), make_node("big", "64")], [busy("a", cpu="2")])
    outcome = cluster.schedule(prefers("p", "a", "gone"))
    assert outcome.node == "a"
    assert cluster.metric("proreus_delay_scheduling_bound_total", "node") == 1


def test_a_pod_lets_opportunities_pass_level_by_level_and_then_goes_anywhere() -> None:
    nodes = [node("a"), node("r", zone="z1"), node("z", "r2"), node("far", "r9", "z9")]
    full = [busy("a"), busy("r", "busy-r"), busy("z", "busy-z")]
    cluster = cluster_of(nodes, full, **THREE_LEVELS)
    outcome = cluster.schedule(prefers("p", "a"))
    assert "0/4 nodes are available: 1 waiting for locality (node, 1/2)" in outcome.message
    assert "3 Insufficient cpu" in outcome.message
    waited = skip_all(cluster, "p")
    assert waited == [f"({level}, {i}/2)" for level in ("node", "rack", "zone") for i in (1, 2)]
    assert cluster.outcome("p").node == "far"
    for level in ("node", "rack", "zone"):
        assert cluster.metric("proreus_delay_scheduling_skips_total", level) == 2
    assert cluster.metric("proreus_delay_scheduling_bound_total", "any") == 1


def test_a_relaxed_pod_takes_a_node_of_the_next_level() -> None:
    nodes = [node("a"), node("near"), node("z", "r2"), node("far", "r9", "z9")]
    cluster = cluster_of(nodes, [busy("a")], **THREE_LEVELS)
    cluster.schedule(prefers("p", "a"))
    assert skip_all(cluster, "p") == ["(node, 1/2)", "(node, 2/2)"]
    assert cluster.outcome("p").node == "near"
    assert cluster.metric("proreus_delay_scheduling_bound_total", "rack") == 1


def test_the_budget_of_seconds_may_end_first() -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a")], waitSeconds=[1, 0], skips=[40, 40])
    cluster.schedule(prefers("p", "a"))
    waited = skip_all(cluster, "p")
    assert 2 <= len(waited) <= 4
    assert cluster.outcome("p").node == "b"


def test_a_pod_is_retried_soon_although_nothing_happens() -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a")])
    cluster.schedule(prefers("p", "a"))
    assert cluster.queue_of("p") != "active"
    cluster.advance(0.11)
    assert cluster.queue_of("p") == "active"


def test_the_remaining_wait_ends_the_pause() -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a")], waitSeconds=[0.05, 0])
    cluster.schedule(prefers("p", "a"))
    cluster.advance(0.06)
    assert cluster.schedule("p").node == "b"


def test_no_pod_is_preempted_for_a_pod_that_waits() -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a")])
    outcome = cluster.schedule(prefers("p", "a", priority=1000))
    assert "waiting for locality" in outcome.message
    assert cluster.pod("busy").metadata.deletion_timestamp is None
    assert not cluster.pod("p").status.nominated_node_name
    assert outcome.rejected_by == {"DelayScheduling"}


def test_it_is_no_opportunity_where_no_other_node_would_do() -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a"), busy("b", "busy-b")])
    message = cluster.schedule(prefers("p", "a")).message
    assert "waiting for locality" not in message
    cluster.remove("Pod", "busy-b")
    cluster.advance(15)
    assert "(node, 1/40)" in cluster.schedule("p").message


def test_nobody_waits_for_a_node_that_cannot_become_free() -> None:
    cordoned = node("a", unschedulable=True)
    for name in ("a", "gone"):
        assert cluster_of([cordoned, node("b")]).schedule(prefers("p", name)).node == "b"


def test_or_does_if_it_was_told_to() -> None:
    cluster = cluster_of([node("a", unschedulable=True), node("b")], onlyWhenPreferredMayFree=False)
    assert "(node, 1/40)" in cluster.schedule(prefers("p", "a")).message


def test_a_pod_that_is_too_large_for_the_preferred_node_does_not_wait() -> None:
    cluster = cluster_of([node("a"), make_node("b", "64")], [busy("a", cpu="1")])
    assert cluster.schedule(prefers("p", "a", cpu="8")).node == "b"


# ---- groups --------------------------------------------------------------------------------------


def test_pods_of_a_controller_count_together_and_a_hit_resets_them() -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a")], skips=[3, 0], waitSeconds=[])
    assert "(node, 1/3)" in cluster.schedule(prefers("p1", "a", owner="o")).message
    assert "(node, 2/3)" in cluster.schedule(prefers("p2", "a", owner="o")).message
    assert "(node, 1/3)" in cluster.schedule(prefers("other", "a", owner="x")).message
    cluster.remove("Pod", "busy")
    assert cluster.schedule("p1").node == "a"
    cluster.add(busy("a", cpu="3"))
    cluster.advance(0.3)
    cluster.schedule_all()
    assert "(node, 1/3)" in cluster.outcome("p2").message


def test_a_group_stays_relaxed_until_it_gets_a_preferred_node() -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a")], skips=[2, 0], waitSeconds=[])
    cluster.schedule(prefers("p1", "a", owner="o"))
    cluster.schedule(prefers("p2", "a", owner="o"))
    assert cluster.schedule(prefers("p3", "a", owner="o")).node == "b"


@pytest.mark.parametrize("end", ["bound", "deleted"])
def test_the_end_of_the_last_pod_that_waits_clears_the_state(end: str) -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a")], skips=[1, 0], waitSeconds=[])
    cluster.schedule(prefers("p", "a", owner="o"))
    plugin = cluster.plugin(DelayScheduling)
    assert len(plugin._waits) == 1
    if end == "bound":
        cluster.advance(0.6)
        assert cluster.schedule("p").node == "b"
    else:
        cluster.remove("Pod", "p")
    assert len(plugin._waits) == 0
    assert not plugin._offers._times
    assert "(node, 1/1)" in cluster.schedule(prefers("q", "a", owner="o")).message


# ---- never delayed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "exempt",
    [
        {"priority": 2_000_000_000},
        {"metadata": {"ownerReferences": [{**DAEMON_SET, "controller": True}]}},
        {"metadata": {"creationTimestamp": datetime.fromtimestamp(0, UTC).isoformat()}},
    ],
    ids=["priority", "daemon", "age"],
)
def test_some_pods_are_never_delayed(exempt: dict[str, Any]) -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a")])
    cluster.advance(31)
    assert cluster.schedule(prefers("p", "a", **exempt)).node == "b"
    cluster.remove("Pod", "busy")
    assert cluster.schedule(prefers("q", "a", **exempt)).node == "a", "they keep what they prefer"


def test_the_wait_over_all_levels_is_limited() -> None:
    cluster = cluster_of(
        [node("a"), node("b")], [busy("a")], skips=[9999, 0], waitSeconds=[], maxTotalSeconds=5
    )
    cluster.schedule(prefers("p", "a"))
    assert 8 <= len(skip_all(cluster, "p")) <= 12


def test_members_of_a_gang_are_not_delayed() -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 2},
    }
    cluster = Harness(
        [Coscheduling, DelayScheduling],
        [node("a"), node("b")],
        [busy("a"), group],
        args={"Coscheduling": {"mode": "plan"}},
    )
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    cluster.add(*(prefers(f"m{number}", "a", labels=labels) for number in range(2)))
    cluster.schedule_all()
    assert [cluster.outcome(f"m{number}").node for number in range(2)] == ["b", "b"]


# ---- what wakes a pod, and what is told ----------------------------------------------------------


def test_a_pod_that_leaves_a_preferred_node_wakes_those_that_wait_for_it() -> None:
    nodes = [node("a"), node("b"), node("c", "r2", "z2")]
    objects = [busy("a"), busy("c", "elsewhere")]
    cluster = cluster_of(nodes, objects, waitSeconds=[], skips=[9, 9])
    plugin_events = cluster.plugin(DelayScheduling).events_to_register()
    deleted = next(iter(plugin_events))
    pod = prefers("p", "a")
    cluster.schedule(pod)
    assert deleted.hint is not None
    assert deleted.hint(pod, cluster.pod("busy"), None)
    assert not deleted.hint(pod, cluster.pod("elsewhere"), None)
    cluster.remove("Pod", "busy")
    assert cluster.queue_of("p") in ("active", "backoff")
    cluster.advance(0.2)
    assert cluster.schedule("p").node == "a"


def test_a_bound_pod_tells_what_it_has_waited() -> None:
    cluster = cluster_of([node("a"), node("b")], [busy("a")], skips=[2, 0], waitSeconds=[])
    cluster.schedule(prefers("p", "a"))
    skip_all(cluster, "p")
    (note,) = [one.note for one in cluster.events("p") if one.reason == "WaitedForLocality"]
    assert note == "waited 2 opportunities (1.2 s) for b (zone)"
    families = {one.description.name: one for one in cluster.scheduler.metrics.families()}
    ((_, waits),) = families["proreus_delay_scheduling_added_wait_seconds"].histograms()
    assert waits.count == 1


# ---- where preferences come from -----------------------------------------------------------------


def test_an_annotation_may_name_the_value_of_any_level() -> None:
    metadata = {"annotations": {"proreus.dev/prefer-zone": "z2, z3"}}
    cluster = cluster_of([node("a"), node("b", "r1", "z2")])
    assert cluster.schedule(make_pod("p", "1", metadata=metadata)).node == "b"


def test_images() -> None:
    nodes = [node("a"), node("warm", images={"app:latest": 1, "x": 1}), node("c")]
    cluster = cluster_of(nodes, defaultSource="image", skips=[1, 0], waitSeconds=[])
    assert cluster.schedule(make_pod("p", "3", image="app")).node == "warm"
    assert "(node, 1/1)" in cluster.schedule(make_pod("q", "3", image="app")).message
    assert cluster.schedule(make_pod("r", "1", image="other")).bound
    annotated = prefers("s", "c", image="app", metadata={})
    assert cluster.schedule(annotated).node == "c", "annotations come first"


def volume_objects(affinity: dict[str, Any] | None) -> list[dict[str, Any]]:
    modes = {"accessModes": ["ReadWriteMany"]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            **modes,
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": "data", "uid": "c"},
            **({"nodeAffinity": affinity} if affinity else {}),
        },
        "status": {"phase": "Bound"},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data",
            "namespace": "default",
            "uid": "c",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {**modes, "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"},
    }
    return [volume, claim]


def user_of_claim(name: str, cpu: str = "1", **more: Any):
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    return make_pod(name, cpu, spec={"volumes": volumes}, **more)


def test_a_volume_that_is_in_use() -> None:
    user = user_of_claim("user", "3", node_name="b")
    cluster = cluster_of([node("a"), node("b")], [*volume_objects(None), user], defaultSource="pvc")
    assert cluster.schedule(user_of_claim("p")).node == "b"
    assert "(node, 1/40)" in cluster.schedule(user_of_claim("q")).message


def test_a_volume_that_nobody_uses_yet() -> None:
    term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": ["r2"]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    cluster = cluster_of(
        [node("a"), node("b", "r2")], volume_objects(affinity), defaultSource="pvc"
    )
    assert cluster.schedule(user_of_claim("p")).node == "b"


def owned(name: str, **more: Any):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "o", "controller": True}
    return make_pod(name, "1", metadata={"ownerReferences": [owner]}, **more)


def test_nodes_where_siblings_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "MOST_NODES_AN_OWNER", 1)
    cluster = cluster_of(
        [node("a"), node("b"), node("c")],
        [owned("first", node_name="a"), owned("second", node_name="b")],
        defaultSource="siblings",
    )
    cluster.remove("Pod", "second")
    assert cluster.schedule(owned("third")).node == "b", "only the latest node is remembered"
    assert cluster.metric("proreus_delay_scheduling_bound_total", "node") == 1
    assert cluster.schedule(make_pod("alone", "1")).bound
    for name in ("b", "c"):
        cluster.patch("Node", name, {"spec": {"unschedulable": True}})
    assert cluster.schedule(owned("elsewhere")).node == "a"
    # By its binding it has made "a" a place of its siblings, which it was not when it was chosen.
    assert cluster.metric("proreus_delay_scheduling_bound_total", "zone") == 1


# ---- soft, and arguments -------------------------------------------------------------------------


def test_soft_prefers_by_score_and_still_waits() -> None:
    cluster = Harness(
        [DelayScheduling],
        [node("a"), node("b")],
        [busy("a", cpu="2")],
        args={"DelayScheduling": {"soft": True}},
        weights={"DelayScheduling": 7},
    )
    outcome = cluster.schedule(prefers("p", "a"))
    assert set(outcome.feasible) == {"a", "b"}
    scores = [outcome.score(name, "DelayScheduling") for name in ("a", "b")]
    assert scores == [700, 0]
    assert "(node, 1/40)" in cluster.schedule(prefers("q", "a", cpu="3")).message


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"skips": [1]}, r"skips: Invalid value: \[1\]: must have one entry a level"),
        ({"waitSeconds": [1, -1]}, r"(?s)waitSeconds\.1.* greater than or equal to 0"),
        ({"skips": [], "waitSeconds": []}, "must be set where waitSeconds is empty"),
        (
            {"levels": [{"name": "n", "key": "a"}, {"name": "n", "key": "b"}]},
            r"levels\[1\]\.name: Invalid value: \"n\": must be unique",
        ),
    ],
)
def test_arguments_are_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValidationError), match=message):
        make_plugin(DelayScheduling, FakeHandle(), wrong)
