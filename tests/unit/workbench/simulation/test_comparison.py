"""Two configurations on the same arrivals, as figures and as a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import cluster, node, pod, settings

from proreus.base.errors import ConfigError
from proreus.workbench.cli.pictures import check_picture
from proreus.workbench.simulation.comparison import ComparisonResult, compare_results
from proreus.workbench.simulation.picture import draw_comparison
from proreus.workbench.simulation.scenario import Scenario
from proreus.workbench.simulation.scenario_run import run_scenario


def strategy(kind: str) -> dict[str, object]:
    weights = [{"name": "cpu", "weight": 1}]
    args = {"scoringStrategy": {"type": kind, "resources": weights}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}],
    }


@pytest.fixture(scope="module")
def comparison() -> ComparisonResult:
    pods = [pod(f"p-{n}", "500m", on=f"n{n % 4}", of="ReplicaSet/p") for n in range(8)]
    scenario = Scenario(cluster(*(node(f"n{n}", zone=f"z{n % 2}") for n in range(4)), *pods))
    scenario.evict_all()
    results = [
        run_scenario(scenario, settings(strategy(kind)))[0]
        for kind in ("LeastAllocated", "MostAllocated")
    ]
    return compare_results(("least", "most"), *results)


def test_least_allocated_uses_all_nodes_and_most_allocated_few(comparison) -> None:
    figures = {one.name: (one.first, one.second) for one in comparison.figures}
    assert figures["pods placed"] == (8, 8)
    assert figures["nodes without a pod"] == (0, 3)
    assert figures["cpu requested"] == (0.25, 0.25)
    least, most = figures["cpu imbalance"]
    assert least == 0 < most
    assert comparison.differently_placed >= 4


def test_a_configuration_is_no_different_from_itself(comparison) -> None:
    same = compare_results(("a", "b"), comparison.first, comparison.first)
    assert same.differently_placed == 0
    assert all(one.first == one.second for one in same.figures)


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_equal_results_give_equal_pictures(tmp_path: Path, suffix: str, comparison) -> None:
    pytest.importorskip("matplotlib")
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        check_picture("--picture", path)
        draw_comparison(path, comparison)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert len(first) > 1000
    if suffix == ".svg":
        assert b"least" in first
        assert b"cpu requested" in first


def test_pictures_that_cannot_be_drawn(tmp_path: Path, comparison) -> None:
    with pytest.raises(ConfigError, match=r"--picture a\.gif: must end in \.svg or \.png"):
        check_picture("--picture", Path("a.gif"))
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match="cannot write"):
        draw_comparison(tmp_path / "nowhere" / "a.svg", comparison)
