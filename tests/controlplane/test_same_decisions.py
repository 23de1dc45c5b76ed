"""The same clusters and pods for kube-scheduler and proreus: the same nodes, the same reasons.

Each scheduler has a control plane of its own and its default configuration; both play a scenario at
the same time. ``--scheduler kube-scheduler`` plays kube-scheduler against itself: what differs then
depends on chance in the scenario.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from envtest import pod_groups
from envtest.binaries import emulated_version
from envtest.control_plane import ControlPlane
from envtest.fake_extender import FakeExtender
from envtest.scenario_cluster import ScenarioCluster, differences
from envtest.schedulers import Kind, RunScheduler, configuration
from scenarios import (
    Scenario,
    affinity,
    devices,
    extenders,
    gangs,
    nodes,
    preemption,
    resizes,
    spread,
    volumes,
)

Json = dict[str, Any]
ScenarioClusters = dict[str, ScenarioCluster]

FAMILIES = (nodes, affinity, spread, volumes, devices, preemption, extenders)
SCENARIOS = {one.__name__: one for family in FAMILIES for one in family.SCENARIOS}

ATTEMPTS_VARY = frozenset({"changes_of_nodes_wake_pods"})
"""Scenarios in which the number of failed attempts depends on chance: those Events are ignored."""

OURS, UPSTREAM = "ours", "upstream"

WITH_GANGS = pod_groups.GATES
WITH_PREEMPTION = f"{WITH_GANGS},WorkloadAwarePreemption=true"
WITH_PLACEMENTS = f"{WITH_PREEMPTION},TopologyAwareWorkloadScheduling=true"

WITH_DEVICES = f"{WITH_GANGS},DRAWorkloadResourceClaims=true,DRANodeAllocatableResources=true"
WITH_DEVICES += ",DRAConsumableCapacity=true"

GATED_FAMILIES = {
    WITH_GANGS: gangs.SCENARIOS,
    WITH_PREEMPTION: gangs.WITH_PREEMPTION,
    WITH_PLACEMENTS: (*gangs.WITH_PREEMPTION, *gangs.WITH_PLACEMENTS),
    WITH_DEVICES: devices.WITH_GATES,
}


@pytest.fixture(scope="module")
def clusters(
    binaries: dict[str, Path], folder: Path, run_module_scheduler: RunScheduler, under_test: Kind
) -> Iterator[ScenarioClusters]:
    with raised(binaries, folder, run_module_scheduler, under_test) as made:
        yield made


@contextmanager
def raised(
    binaries: dict[str, Path], folder: Path, run: RunScheduler, under_test: Kind, gates: str = ""
) -> Iterator[ScenarioClusters]:
    """Start a control plane, a scheduler and an extender for each cluster."""
    kinds: dict[str, Kind] = {OURS: under_test, UPSTREAM: "kube-scheduler"}
    flags = [f"--feature-gates={gates}"] if gates else []
    apis = pod_groups.APISERVER_FLAGS if gates else []
    made: ScenarioClusters = {}
    with ExitStack() as cleanup:
        for name, kind in kinds.items():
            where = folder / f"same-{name}-{gates.count('=')}"
            plane = ControlPlane(binaries, where, audit=False, flags=[*flags, *apis])
            cleanup.callback(plane.stop)
            plane.start()
            extender = FakeExtender(plane.client)
            cleanup.callback(extender.close)
            config = configuration([], plane.kubeconfig)
            del config["profiles"]  # compare the default profile
            config["extenders"] = [extender.configuration()]
            run(config, kind=kind, flags=flags)
            made[name] = ScenarioCluster(plane.client)
            made[name].prepare()
        yield made


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_make_the_same_decisions(clusters: ScenarioClusters, name: str) -> None:
    recorded_states = play(clusters, SCENARIOS[name])
    if name in ATTEMPTS_VARY:
        for recorded_state in recorded_states.values():
            recorded_state["events"] = without_attempts(recorded_state["events"])
    assert "\n".join(differences(recorded_states[OURS], recorded_states[UPSTREAM])) == ""
    assert recorded_states[OURS]["at the end"]["pods"]


@pytest.mark.skipif(
    not pod_groups.SCHEDULED, reason="proreus does not schedule the pod groups of this version"
)
@pytest.mark.parametrize("gates", GATED_FAMILIES)
def test_both_make_the_same_decisions_with_gates(
    binaries: dict[str, Path],
    folder: Path,
    run_scheduler: RunScheduler,
    under_test: Kind,
    gates: str,
    subtests: pytest.Subtests,
) -> None:
    with raised(binaries, folder, run_scheduler, under_test, gates) as clusters:
        for scenario in GATED_FAMILIES[gates]:
            with subtests.test(scenario.__name__):
                recorded_states = play(clusters, scenario)
                assert (
                    "\n".join(differences(recorded_states[OURS], recorded_states[UPSTREAM])) == ""
                )


@pytest.mark.skipif(emulated_version() == "1.36", reason="the gate is new in 1.37")
def test_both_preempt_for_the_same_resizes(
    binaries: dict[str, Path],
    folder: Path,
    run_scheduler: RunScheduler,
    under_test: Kind,
    subtests: pytest.Subtests,
) -> None:
    with raised(binaries, folder, run_scheduler, under_test, resizes.GATES) as clusters:
        for scenario in resizes.SCENARIOS:
            with subtests.test(scenario.__name__):
                states = play(clusters, scenario)
                assert "\n".join(differences(states[OURS], states[UPSTREAM])) == ""


def without_attempts(events: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the Events of each pod, without those of failed attempts."""
    return {
        name: [line for line in lines if "FailedScheduling" not in line]
        for name, lines in events.items()
    }


def play(clusters: ScenarioClusters, scenario: Scenario) -> dict[str, Json]:
    """Play a scenario on all clusters in parallel; return their recorded states."""

    def one(name: str) -> Json:
        cluster = clusters[name]
        try:
            scenario(cluster)
            return cluster.recorded_state()
        finally:
            cluster.clear()

    with ThreadPoolExecutor(len(clusters)) as threads:
        running = {name: threads.submit(one, name) for name in clusters}
    failed = {name: error for name, future in running.items() if (error := future.exception())}
    for name, error in failed.items():
        error.add_note(f"on the cluster {name}; clusters that failed: {', '.join(failed)}")
        raise error
    return {name: future.result() for name, future in running.items()}
