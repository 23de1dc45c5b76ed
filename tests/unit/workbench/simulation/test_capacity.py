"""How many more pods fit: as many as real pods would, and why no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import ZONE, cluster, node, pod, run, settings, written

from proreus.base.errors import ConfigError
from proreus.workbench.simulation.capacity import measure_capacity
from proreus.workbench.simulation.scenario import Scenario


def test_as_many_fit_as_real_pods_do(tmp_path: Path) -> None:
    objects = cluster(*(node(f"n{n}", cpu=str(n)) for n in range(1, 6)), pod("a", "2", on="n5"))
    path = written(tmp_path, "pod.yaml", pod("more", "1500m"))
    (found,) = measure_capacity(Scenario(objects), settings(), [str(path)])
    # 0 + 1 + 2 + 2 + (5 - 2 = 3 CPUs:) 2
    assert (found.fits, found.exhausted) == (7, True)
    assert [(one.plugin, one.reason, one.nodes) for one in found.limits] == [
        ("NodeResourcesFit", "Insufficient cpu", 5)
    ]
    assert found.message.startswith("0/5 nodes are available: 5 Insufficient cpu.")
    assert found.after.resources["cpu"].requested == 2000 + 7 * 1500
    real = Scenario(objects)
    real.add_file(path, 20)
    assert len(run(real).placed) == found.fits


def test_a_pod_that_names_no_scheduler_is_one_of_the_simulated_one(tmp_path: Path) -> None:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "mine"}],
    }
    one = pod("more", "1500m")
    del one["spec"]["schedulerName"]
    path = written(tmp_path, "pod.yaml", one)
    objects = cluster(node("n0", cpu="4"))
    (found,) = measure_capacity(Scenario(objects), settings(config), [str(path)])
    assert (found.fits, found.exhausted) == (2, True)


def test_the_resource_that_runs_out_first_comes_first(tmp_path: Path) -> None:
    small = node("small")
    small["status"]["allocatable"] |= {"memory": "1Gi"}
    nodes = [node("n0"), node("n1"), node("tainted", taints=[{"key": "k", "effect": "NoSchedule"}])]
    one = pod("more", "1")
    one["spec"]["containers"][0]["resources"]["requests"]["memory"] = "2Gi"
    path = written(tmp_path, "pod.yaml", one)
    (found,) = measure_capacity(Scenario(cluster(*nodes, small)), settings(), [str(path)])
    assert found.fits == 8
    assert [(one.reason, one.nodes) for one in found.limits] == [
        ("Insufficient cpu", 2),
        ("Insufficient memory", 1),
        ("node(s) had untolerated taint(s)", 1),
    ]


def test_constraints_other_than_resources_count(tmp_path: Path) -> None:
    spread = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "more"}},
    }
    one = pod("more", "1", topologySpreadConstraints=[spread])
    path = written(tmp_path, "pod.yaml", one)
    objects = cluster(node("n0", cpu="2", zone="a"), node("n1", cpu="9", zone="b"))
    (found,) = measure_capacity(Scenario(objects), settings(), [str(path)])
    # Two in the small zone, and one more than that in the large one.
    assert found.fits == 5
    assert "PodTopologySpread" in {one.plugin for one in found.limits}


def test_nobody_is_preempted_for_it(tmp_path: Path) -> None:
    objects = cluster(node("n0"), pod("low", "3", on="n0", priority=-5))
    path = written(tmp_path, "pod.yaml", pod("high", "1", priority=100))
    (found,) = measure_capacity(Scenario(objects), settings(), [str(path)])
    assert found.fits == 1
    assert found.after.pods == 2


def test_each_pod_of_a_file_is_asked_about_on_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, "pods.yaml", pod("one", "1"), pod("two", "2"))
    found = measure_capacity(Scenario(cluster(node("n0"))), settings(), [str(path)])
    assert [(one.pod, one.fits) for one in found] == [("shop/one", 4), ("shop/two", 2)]


def test_a_pod_of_the_cluster_as_the_model(tmp_path: Path) -> None:
    objects = cluster(node("n0"), node("n1"), pod("web-0", "3", on="n0", of="ReplicaSet/web"))
    (found,) = measure_capacity(Scenario(objects), settings(), ["pod/shop/web-0"])
    assert (found.pod, found.fits) == ("shop/web-0-more", 1)
    with pytest.raises(ConfigError, match="there is no pod shop/nobody"):
        measure_capacity(Scenario(objects), settings(), ["pod/shop/nobody"])


def test_it_ends_at_the_limit(tmp_path: Path) -> None:
    path = written(tmp_path, "pod.yaml", pod("more", "1m"))
    (found,) = measure_capacity(Scenario(cluster(node("n0"))), settings(), [str(path)], limit=50)
    assert (found.fits, found.exhausted, found.limits) == (50, False, ())


def test_the_scenario_comes_first(tmp_path: Path) -> None:
    scenario = Scenario(cluster(node("n0"), pod("pending", "1")))
    scenario.add_nodes("node/n0", 1)
    path = written(tmp_path, "pod.yaml", pod("more", "2"))
    (found,) = measure_capacity(scenario, settings(), [str(path)])
    assert found.fits == 3


def test_a_file_without_pods(tmp_path: Path) -> None:
    path = written(tmp_path, "none.yaml", node("n0"))
    with pytest.raises(ConfigError, match="there is no pod in it"):
        measure_capacity(Scenario(cluster(node("n0"))), settings(), [str(path)])
