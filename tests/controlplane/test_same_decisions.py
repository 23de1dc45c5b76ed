"""The same clusters and pods for kube-scheduler and proreus: the same nodes, the same reasons.

Each scheduler has a control plane of its own and its default configuration; both play a scenario at
the same time. ``--scheduler kube-scheduler`` plays kube-scheduler against itself: what differs then
depends on chance in the scenario.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from envtest import deploy, pod_groups
from envtest.binaries import emulated_version
from envtest.control_plane import ControlPlane
from envtest.fake_extender import FakeExtender
from envtest.scenario_cluster import ScenarioCluster, differences
from envtest.schedulers import Kind, RunScheduler, configuration
from scenarios import (
    Interrupted,
    Scenario,
    affinity,
    devices,
    extenders,
    gangs,
    group_preemption,
    nodes,
    placements,
    pod_groups_v1_36,
    preemption,
    resizes,
    spread,
    volumes,
)

T = TypeVar("T")
Json = dict[str, Any]
ScenarioClusters = dict[str, ScenarioCluster]

FAMILIES = (nodes, affinity, spread, volumes, devices, preemption, extenders)
SCENARIOS = {one.__name__: one for family in FAMILIES for one in family.SCENARIOS}

ATTEMPTS_VARY = frozenset(
    {
        "changes_of_nodes_wake_pods",
        "gangs_have_more_members_than_they_need",
        "one_pod_of_a_gang_preempts_for_itself",
    }
)
"""Scenarios in which kube-scheduler's failed attempts depend on chance: their Events are ignored.

Of the gang it makes, or does not make, one more attempt before the first victim is gone; of a gang
without nodes it tries as many members as have arrived.
"""

PLAYED_AT_MOST = 2
"""How often a scenario is played until both schedulers do the same.

kube-scheduler decides in one goroutine and hears of changes in others, so that now and then it
attempts a pod or a group before or after a change that it usually sees. What differs between the
schedulers for another reason differs each time. A repetition is reported as a warning.
"""

OURS, UPSTREAM = "ours", "upstream"

pytestmark = pytest.mark.filterwarnings(r"default:\w+ is played once more")


class Gated(NamedTuple):
    """Scenarios that need feature gates, ``gates`` besides those of pod groups."""

    gates: str
    scenarios: Sequence[Scenario | Interrupted]


_GANGS = (*gangs.BOTH_VERSIONS, gangs.gangs_bound_in_part)
_PREEMPTION = "WorkloadAwarePreemption=true"
_TOPOLOGY = "TopologyAwareWorkloadScheduling=true"
_DEVICES = "DRAWorkloadResourceClaims=true"
_NODE_DEVICES = f"{_DEVICES},DRANodeAllocatableResources=true,DRAConsumableCapacity=true"

GATED_OF_VERSION = {
    "1.36": {
        "gangs": Gated("", (*pod_groups_v1_36.SCENARIOS, *_GANGS)),
        "preemption": Gated(
            _PREEMPTION, (*pod_groups_v1_36.WITH_PREEMPTION, *group_preemption.BOTH_VERSIONS)
        ),
        "placements": Gated(
            f"{_PREEMPTION},{_TOPOLOGY}",
            (*pod_groups_v1_36.WITH_PREEMPTION, *pod_groups_v1_36.WITH_PLACEMENTS),
        ),
        "devices": Gated(_NODE_DEVICES, devices.WITH_GATES),
    },
    "1.37": {
        "gangs": Gated("", (*group_preemption.BOTH_VERSIONS, *group_preemption.SCENARIOS, *_GANGS)),
        "placements": Gated(
            f"{_TOPOLOGY},CompositePodGroup=true,{_DEVICES}",
            (*placements.SCENARIOS, *placements.TREES, devices.groups_have_claims),
        ),
        "resizes": Gated(resizes.GATES, resizes.SCENARIOS),
    },
    # 1.38 reads CompositePodGroups in v1beta1, which the kube-apiserver beside it does not serve
    "1.38": {
        "gangs": Gated("", (*group_preemption.BOTH_VERSIONS, *group_preemption.SCENARIOS, *_GANGS)),
        "placements": Gated(_TOPOLOGY, placements.SCENARIOS),
        "resizes": Gated(resizes.GATES, resizes.SCENARIOS),
    },
}
GATED = GATED_OF_VERSION[emulated_version()]


@pytest.fixture(scope="module")
def clusters(
    binaries: dict[str, Path], folder: Path, run_module_scheduler: RunScheduler, under_test: Kind
) -> Iterator[ScenarioClusters]:
    with raised(binaries, folder, run_module_scheduler, under_test) as made:
        yield made


@contextmanager
def raised(
    binaries: dict[str, Path], folder: Path, run: RunScheduler, under_test: Kind, family: str = ""
) -> Iterator[ScenarioClusters]:
    """Start a control plane, a scheduler and an extender for each cluster.

    ``family``: of ``GATED``, for its gates; then proreus has the permissions of ``deploy/`` only.
    """
    kinds: dict[str, Kind] = {OURS: under_test, UPSTREAM: "kube-scheduler"}
    flags, apis = [], []
    if family:
        gates = [pod_groups.GATES, *filter(None, [GATED[family].gates])]
        flags, apis = pod_groups.flags_of(",".join(gates)), pod_groups.APISERVER_FLAGS
    made: ScenarioClusters = {}
    with ExitStack() as cleanup:
        for name, kind in kinds.items():
            where = folder / f"same-{name}-{family}"
            plane = ControlPlane(binaries, where, audit=False, flags=[*flags, *apis])
            cleanup.callback(plane.stop)
            plane.start()
            extender = FakeExtender(plane.client)
            cleanup.callback(extender.close)
            kubeconfig = plane.kubeconfig
            if family and kind == "proreus":
                kubeconfig = deploy.service_account_kubeconfig(plane)
            config = configuration([], kubeconfig)
            del config["profiles"]  # compare the default profile
            config["extenders"] = [extender.configuration()]
            scheduler = run(config, kind=kind, flags=flags)
            made[name] = ScenarioCluster(plane.client, scheduler)
            made[name].prepare()
        yield made


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_make_the_same_decisions(clusters: ScenarioClusters, name: str) -> None:
    recorded_states = assert_same_decisions(clusters, name, SCENARIOS[name])
    assert recorded_states[OURS]["at the end"]["pods"]


@pytest.mark.parametrize("family", GATED)
def test_both_make_the_same_decisions_with_gates(
    binaries: dict[str, Path],
    folder: Path,
    run_scheduler: RunScheduler,
    under_test: Kind,
    family: str,
    subtests: pytest.Subtests,
) -> None:
    with raised(binaries, folder, run_scheduler, under_test, family) as clusters:
        for scenario in GATED[family].scenarios:
            name = "interrupted" if isinstance(scenario, Interrupted) else scenario.__name__
            with subtests.test(name):
                assert_same_decisions(clusters, name, scenario)


def assert_same_decisions(
    clusters: ScenarioClusters, name: str, scenario: Scenario | Interrupted
) -> dict[str, Json]:
    """Play a scenario until its recorded states are equal, and return them."""
    for _ in range(PLAYED_AT_MOST - 1):
        try:
            recorded_states = play(clusters, scenario)
            different = differences_of(name, recorded_states)
        except AssertionError as failure:
            different = "\n".join([str(failure), *getattr(failure, "__notes__", [])])
        if different == "":
            return recorded_states
        warnings.warn(f"{name} is played once more: {different}", stacklevel=2)
    recorded_states = play(clusters, scenario)
    assert differences_of(name, recorded_states) == ""
    return recorded_states


def differences_of(scenario: str, recorded_states: dict[str, Json]) -> str:
    """Return the differences between the schedulers, a line each; "" if there are none."""
    if scenario in ATTEMPTS_VARY:
        for recorded_state in recorded_states.values():
            recorded_state["events"] = without_attempts(recorded_state["events"])
    return "\n".join(differences(recorded_states[OURS], recorded_states[UPSTREAM]))


def without_attempts(events: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the Events of each pod, without those of failed attempts."""
    return {
        name: [line for line in lines if "FailedScheduling" not in line]
        for name, lines in events.items()
    }


def play(clusters: ScenarioClusters, scenario: Scenario | Interrupted) -> dict[str, Json]:
    """Play a scenario on all clusters in parallel; return their recorded states."""

    def record(cluster: ScenarioCluster) -> Json:
        last(cluster)
        return cluster.recorded_state()

    try:
        if isinstance(scenario, Interrupted):
            in_parallel(clusters, scenario.before)
            # by the main thread, which alone may start processes
            for cluster in clusters.values():
                cluster.scheduler.kill()
            in_parallel(clusters, scenario.meanwhile)
            for cluster in clusters.values():
                cluster.scheduler.run()
            last = scenario.after
        else:
            last = scenario
        return in_parallel(clusters, record)
    finally:
        in_parallel(clusters, ScenarioCluster.clear)


def in_parallel(clusters: ScenarioClusters, work: Callable[[ScenarioCluster], T]) -> dict[str, T]:
    """Return what ``work`` returns for each cluster; raise the first error, with its cluster."""
    with ThreadPoolExecutor(len(clusters)) as threads:
        running = {name: threads.submit(work, cluster) for name, cluster in clusters.items()}
    failed = {name: error for name, future in running.items() if (error := future.exception())}
    for name, error in failed.items():
        error.add_note(f"on the cluster {name}; clusters that failed: {', '.join(failed)}")
        raise error
    return {name: future.result() for name, future in running.items()}
