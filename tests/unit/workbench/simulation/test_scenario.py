"""Changes to a cluster, and what the scheduler makes of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import ZONE, cluster, node, nodes_of, pod, run, written

from proreus.base.errors import ConfigError
from proreus.objects.kinds import PODS
from proreus.workbench.simulation.scenario import Scenario

WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "replicas": 3,
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "1"}}}]},
        },
    },
}


def test_pending_pods_of_the_snapshot_are_placed_or_explained() -> None:
    result = run(Scenario(cluster(node("n0", cpu="2"), pod("small", "1"), pod("large", "3"))))
    assert nodes_of(result) == {"small": "n0"}
    (unplaced,) = result.unplaced
    assert (unplaced.pod, unplaced.reason) == ("shop/large", "Unschedulable")
    assert unplaced.plugins == ("NodeResourcesFit",)
    assert [(one.plugin, one.reason, one.nodes) for one in unplaced.rejections] == [
        ("NodeResourcesFit", "Insufficient cpu", 1)
    ]
    assert unplaced.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_added_workloads_become_pods_with_the_defaults_of_an_apiserver(tmp_path: Path) -> None:
    scenario = Scenario(cluster(node("n0", cpu="4")))
    assert scenario.add_file(written(tmp_path, "web.yaml", WEB)) == [
        f"shop/web-{number}" for number in range(3)
    ]
    added = scenario.objects.of(PODS)["shop/web-0"]
    # A limit is a request, too, and nobody has to name the scheduler.
    assert added.spec.containers[0].resources.requests == {"cpu": "1"}
    assert added.spec.scheduler_name == "default-scheduler"
    result = run(scenario)
    assert len(result.placed) == 3
    assert {one.workload for one in result.placed} == {"deployment/shop/web"}
    assert result.after.resources["cpu"].requested == 3000


@pytest.mark.parametrize("replicas", [1, 5])
def test_replicas_of_a_pod(tmp_path: Path, replicas: int) -> None:
    scenario = Scenario(cluster(node("n0", cpu="4")))
    added = scenario.add_file(written(tmp_path, "pod.yaml", pod("web")), replicas)
    assert added == (["shop/web"] if replicas == 1 else [f"shop/web-{n}" for n in range(5)])
    result = run(scenario)
    assert (len(result.placed), len(result.unplaced)) == (min(replicas, 4), max(replicas - 4, 0))


def test_added_pods_have_the_priority_of_their_class(tmp_path: Path) -> None:
    known = pod("old", on="n0", priority=700, priorityClassName="known")
    scenario = Scenario(cluster(node("n0"), known))
    given = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "given"},
        "value": 900,
    }
    one, other = pod("one", priorityClassName="given"), pod("other", priorityClassName="known")
    for added in (one, other):
        del added["spec"]["priority"]
    scenario.add_file(written(tmp_path, "pods.yaml", given, one, other))
    pods = scenario.objects.of(PODS)
    assert (pods["shop/one"].spec.priority, pods["shop/other"].spec.priority) == (900, 700)
    bad = written(tmp_path, "bad.yaml", pod("bad", priorityClassName="nowhere"))
    with pytest.raises(ConfigError, match="no PriorityClass with name nowhere was found"):
        scenario.add_file(bad)


def test_drained_pods_go_elsewhere_and_come_back_with_their_names() -> None:
    scenario = Scenario(
        cluster(
            node("n0"),
            node("n1"),
            pod("web-0", on="n0", of="ReplicaSet/web"),
            pod("logs", on="n0", of="DaemonSet/logs"),
            pod("alone", on="n0"),
        )
    )
    scenario.drain("n0")
    result = run(scenario)
    assert [(one.pod, one.previous_node, one.node) for one in result.placed] == [
        ("shop/web-0", "n0", "n1")
    ]
    assert result.moved == 1
    # Nobody creates a pod without a controller anew; a DaemonSet's stays.
    assert result.lost == ("shop/alone",)
    assert result.after.pods == 2


def test_a_drain_says_which_budgets_are_in_the_way() -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 1},
    }
    pods = [pod(f"web-{n}", on="n0", of="ReplicaSet/web") for n in range(3)]
    scenario = Scenario(cluster(node("n0"), node("n1"), budget, *pods))
    scenario.drain("n0")
    assert scenario.notes == [
        "node n0: PodDisruptionBudget shop/web allows 1 of 3 evictions at once; kubectl drain "
        "would wait for the others"
    ]


def test_a_removed_node_takes_its_daemon_pods_with_it() -> None:
    scenario = Scenario(
        cluster(
            node("n0"),
            node("n1"),
            pod("web-0", on="n0", of="StatefulSet/web"),
            pod("logs", on="n0", of="DaemonSet/logs"),
        )
    )
    scenario.remove("node/n0")
    result = run(scenario)
    assert nodes_of(result) == {"web-0": "n1"}
    assert (result.after.nodes, result.after.pods) == (1, 1)
    assert result.lost == ()


@pytest.mark.parametrize(
    ("reference", "removed"),
    [
        ("pod/shop/web-0", ["shop/web-0"]),
        ("workload/shop/web", ["shop/web-0", "shop/web-1"]),
        ("deployment/shop/web", ["shop/web-0", "shop/web-1"]),
        ("replicaset/shop/web-abc", ["shop/web-0", "shop/web-1"]),
    ],
)
def test_removed_pods_make_room(reference: str, removed: list[str]) -> None:
    pods = [pod(f"web-{n}", on="n0", of="ReplicaSet/web-abc") for n in range(2)]
    for one in pods:
        one["metadata"]["labels"]["pod-template-hash"] = "abc"
    scenario = Scenario(cluster(node("n0", cpu="2"), *pods, pod("new", "1")))
    assert not run(scenario).placed
    scenario.remove(reference)
    result = run(scenario)
    assert list(result.removed) == removed
    assert nodes_of(result) == {"new": "n0"}


def test_a_deployment_is_found_through_its_replica_set() -> None:
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "odd",
            "namespace": "shop",
            "ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}],
        },
    }
    scenario = Scenario(cluster(node("n0"), replica_set, pod("web-0", of="ReplicaSet/odd")))
    (placed,) = run(scenario).placed
    assert placed.workload == "deployment/shop/web"


def test_added_nodes_of_a_file(tmp_path: Path) -> None:
    scenario = Scenario(cluster(node("n0", cpu="1"), *(pod(f"p-{n}", "4") for n in range(3))))
    assert scenario.add_nodes(str(written(tmp_path, "n.yaml", node("n0"))), 2) == ["n0-1", "n0-2"]
    result = run(scenario)
    assert sorted(nodes_of(result).values()) == ["n0-1", "n0-2"]
    assert len(result.unplaced) == 1
    hostnames = [one.metadata.labels["kubernetes.io/hostname"] for one in scenario.nodes()]
    assert hostnames == ["n0", "n0-1", "n0-2"]


def test_added_nodes_like_one_of_the_cluster_run_its_daemon_pods() -> None:
    scenario = Scenario(
        cluster(
            node("n0"),
            pod("logs", "3", on="n0", of="DaemonSet/logs"),
            pod("web", "1", on="n0", of="ReplicaSet/web"),
            pod("new", "2"),
        )
    )
    assert scenario.add_nodes("node/n0", 1) == ["n0-1"]
    result = run(scenario)
    # 4 - 3 of its own DaemonSet: too little there as well.
    assert [one.pod for one in result.unplaced] == ["shop/new"]
    assert (result.after.nodes, result.after.pods) == (2, 3)


def test_everything_anew_begins_with_the_oldest_pod() -> None:
    pods = [
        pod("young", "3", on="n0", of="ReplicaSet/a", created=5),
        pod("old", "3", on="n1", of="ReplicaSet/b", created=1),
        pod("alone", "1", on="n1", created=9),
        pod("logs", "1", on="n1", of="DaemonSet/logs"),
    ]
    scenario = Scenario(cluster(node("n0", cpu="4"), node("n1", cpu="1"), *pods))
    scenario.evict_all()
    result = run(scenario)
    # "old" takes the only place that is large enough, and DaemonSet pods stay where they are.
    assert nodes_of(result) == {"old": "n0", "alone": "n0"}
    assert [one.pod for one in result.unplaced] == ["shop/young"]
    assert result.unplaced[0].previous_node == "n0"


def test_victims_come_back_if_somebody_creates_them() -> None:
    low = [pod("batch-0", "3", on="n0", of="Job/batch"), pod("alone", "1", on="n0")]
    scenario = Scenario(cluster(node("n0"), *low, pod("high", "4", priority=9)))
    result = run(scenario)
    assert nodes_of(result) == {"high": "n0"}
    assert {(one.pod, one.node, one.preemptor, one.node_after) for one in result.victims} == {
        ("shop/batch-0", "n0", "shop/high", ""),
        ("shop/alone", "n0", "shop/high", ""),
    }
    # The Job creates its pod anew, for which there is no room now.
    assert [(one.pod, one.previous_node) for one in result.unplaced] == [("shop/batch-0", "n0")]


def test_gated_pods_and_those_of_other_schedulers_are_told_apart() -> None:
    gated = pod("gated", schedulingGates=[{"name": "quota"}])
    foreign = pod("foreign", schedulerName="other")
    result = run(Scenario(cluster(node("n0"), gated, foreign)))
    assert [(one.pod, one.reason, one.plugins) for one in result.unplaced] == [
        ("shop/gated", "SchedulingGated", ("SchedulingGates",))
    ]
    assert result.other_schedulers == 1


def written_by_hand(name: str, **spec: Any) -> dict[str, Any]:
    made = pod(name, **spec)
    if "schedulerName" not in spec:
        del made["spec"]["schedulerName"]
    return made


def profiles(*names: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": name} for name in names],
    }


def test_added_pods_that_name_no_scheduler_belong_to_the_simulated_one(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "pods.yaml",
        written_by_hand("mine"),
        written_by_hand("theirs", schedulerName="default-scheduler"),
        written_by_hand("second", schedulerName="second"),
    )
    scenario = Scenario(cluster(node("n0"), pod("old")))
    scenario.add_file(path)
    result = run(scenario, config=profiles("first", "second"))
    assert nodes_of(result).keys() == {"mine", "second"}
    assert result.other_schedulers == 2, "those that name it, and those that were there"
    assert any("belong to the profile first" in note for note in result.notes)
    # The same scenario with a profile of that name: nothing is changed.
    result = run(scenario)
    assert nodes_of(result).keys() == {"old", "mine", "theirs"}
    assert result.notes == ()


def test_finished_and_terminating_pods_do_not_arrive() -> None:
    finished = pod("done")
    finished["status"]["phase"] = "Succeeded"
    terminating = pod("ending")
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert run(Scenario(cluster(node("n0"), finished, terminating))).arrivals == 0


def test_the_scenario_leaves_the_snapshot_as_it_was() -> None:
    objects = cluster(node("n0"), node("n1"), pod("web-0", on="n0", of="ReplicaSet/web"))
    before = [obj for _, obj in objects]
    scenario = Scenario(objects)
    scenario.drain("n0")
    scenario.remove("node/n1")
    assert [obj for _, obj in objects] == before
    # Twice the same: a run changes nothing of the scenario either.
    assert run(scenario) == run(scenario)


def test_skew_before_and_after() -> None:
    spread = {
        "topologySpreadConstraints": [
            {
                "topologyKey": ZONE,
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    }
    pods = [pod(f"web-{n}", "1", on="n0", of="ReplicaSet/web", **spread) for n in range(4)]
    scenario = Scenario(cluster(node("n0", zone="a"), node("n1", zone="b"), *pods))
    scenario.evict_all()
    (skew,) = run(scenario).spread
    assert (skew.topology_key, skew.domains, skew.pods) == (ZONE, 2, 4)
    assert (skew.before, skew.after, skew.max_skew) == (4, 0, 1)


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("node/n9", "there is no node n9"),
        ("pod/shop/web", "there is no pod shop/web"),
        ("pod/web", "there is no pod default/web"),
        ("workload/shop/web", "no pod belongs to a workload shop/web"),
        ("nonsense", "must be node/…, pod/… or workload/…"),
    ],
)
def test_references_to_nothing(reference: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Scenario(cluster(node("n0"))).remove(reference)


def test_files_that_cannot_be_added(tmp_path: Path) -> None:
    scenario = Scenario(cluster(node("n0"), pod("web", on="n0")))
    cases = [
        (written(tmp_path, "a", pod("web")), r"document 1: metadata.name: there is a pod shop/web"),
        (written(tmp_path, "b", {**WEB, "spec": {}}), "spec.template: the template of a Deploy"),
        (
            written(tmp_path, "c", {**WEB, "spec": {**WEB["spec"], "replicas": "two"}}),
            "spec.replicas: 'two' is not a number of pods",
        ),
        (
            written(tmp_path, "l", {**WEB, "spec": {**WEB["spec"], "replicas": 2**31 - 1}}),
            "l, document 1: 2,147,483,647 pods are more than 500,000",
        ),
        (written(tmp_path, "d", {"kind": "Pod", "metadata": {"name": "x"}}), "spec: the spec"),
        (
            written(tmp_path, "e", pod("x", "1x")),
            r"\(Pod shop/x\): spec.containers\[0\].resources.requests.cpu: quantity '1x'",
        ),
        (
            written(tmp_path, "f", {**pod("x"), "spec": {"containers": []}}),
            "spec.containers: Required value",
        ),
    ]
    for path, error in cases:
        with pytest.raises(ConfigError, match=error) as raised:
            scenario.add_file(path)
        assert str(path) in str(raised.value)


FULL = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "replicas": 2,
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "ports": [{"containerPort": 80}],
                        "resources": {"requests": {"cpu": "1"}},
                    }
                ],
                "nodeSelector": {"a": "b"},
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
    },
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in plain data."""
    yield path
    items = enumerate(value) if isinstance(value, list) else getattr(value, "items", tuple)()
    for key, one in items:
        yield from places(one, (*path, key))


@pytest.mark.parametrize("odd", [None, True, -1, 2**70, "", "x/y", [], [1], {}, {"x": 1}], ids=repr)
def test_a_value_of_any_type_in_any_place_is_an_error_that_names_the_file(
    tmp_path: Path, odd: object
) -> None:
    for path in places(FULL):
        changed = copy.deepcopy({"root": FULL})
        parent: Any = changed
        for key in ("root", *path)[:-1]:
            parent = parent[key]
        parent[("root", *path)[-1]] = odd
        file = written(tmp_path, "odd", {})
        file.write_text(json.dumps(changed["root"]))
        try:
            Scenario(cluster(node("n0"))).add_file(file)
        except ConfigError as error:
            assert str(file) in str(error)  # noqa: PT017 (some changes are valid)


def test_copies_that_memory_does_not_hold_are_refused(tmp_path: Path) -> None:
    scenario = Scenario(cluster(node("n0")))
    large = written(tmp_path, "large", {**pod("x"), "large": "x" * 100_000})
    with pytest.raises(ConfigError, match=r"20,000 pods have 2,\d+,\d+,\d+ bytes, more than 1,0"):
        scenario.add_file(large, 20_000)
    with pytest.raises(ConfigError, match="Node n0: 9,999,999 nodes are more than 500,000"):
        scenario.add_nodes("node/n0", 9_999_999)


def test_objects_that_no_scheduler_reads_are_noted(tmp_path: Path) -> None:
    scenario = Scenario(cluster(node("n0")))
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    scenario.add_file(written(tmp_path, "a", config_map, pod("web")))
    assert "no scheduler reads a ConfigMap" in scenario.notes[0]


def test_node_templates_that_are_none(tmp_path: Path) -> None:
    scenario = Scenario(cluster(node("n0")))
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    with pytest.raises(ConfigError, match=r"status\.allocatable: is required"):
        scenario.add_nodes(str(written(tmp_path, "bare", bare)), 1)
    with pytest.raises(ConfigError, match="exactly one Node is needed, not 0"):
        scenario.add_nodes(str(written(tmp_path, "pod", pod("web"))), 1)
    with pytest.raises(ConfigError, match="at least one node is needed"):
        scenario.add_nodes("node/n0", 0)


def test_a_cluster_without_nodes_is_noted() -> None:
    assert "no nodes" in Scenario(cluster(pod("web"))).notes[0]
