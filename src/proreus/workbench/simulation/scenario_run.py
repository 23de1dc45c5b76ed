"""One scenario from its start to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import key_of
from proreus.objects.pod import POD_SCHEDULED, Pod, condition_of
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.workbench.simulation.results import (
    ScenarioResult,
    ScheduledPod,
    Timings,
    UnplacedPod,
    Utilisation,
    VictimPod,
)
from proreus.workbench.simulation.scenario import Scenario
from proreus.workbench.simulation.simulated_cluster import Settings, SimulatedCluster
from proreus.workbench.simulation.spread import PodSpread, compare_spread
from proreus.workbench.simulation.utilisation import Shapes, measure


def _nobody(_: SimulatedCluster) -> None:
    """Do nothing with a cluster."""


def run_scenario(
    scenario: Scenario,
    settings: Settings,
    watch: Callable[[SimulatedCluster], None] = _nobody,
) -> tuple[ScenarioResult, Timings]:
    """Run a scenario from its start to its end; raises ``ConfigError`` for the configuration.

    ``watch`` is given the cluster before anything happens in it. Needs a thread without a running
    event loop: the clock of the one that it makes is virtual.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_run(scenario, settings, watch))


async def _run(
    scenario: Scenario, settings: Settings, watch: Callable[[SimulatedCluster], None]
) -> tuple[ScenarioResult, Timings]:
    cluster = SimulatedCluster(settings)
    watch(cluster)
    started = perf_counter()
    await cluster.load(scenario.before)
    load_seconds = perf_counter() - started
    shapes = cluster.shapes_with(scenario.pending())
    before = measure(cluster.table, shapes)
    objects, notes = scenario.objects_for(list(cluster.scheduler.profiles))
    await cluster.change(scenario.before, objects)
    began = perf_counter()
    await cluster.schedule()
    seconds = perf_counter() - began
    result = result_of(cluster, scenario, before, shapes)
    result = msgspec.structs.replace(result, notes=(*result.notes, *notes))
    return result, timings_of(cluster, load_seconds, seconds)


def result_of(
    cluster: SimulatedCluster, scenario: Scenario, before: Utilisation, shapes: Shapes
) -> ScenarioResult:
    """Return the fate of all arrivals, and the state of the cluster."""
    placed: list[ScheduledPod] = []
    unplaced: list[UnplacedPod] = []
    workloads, pods = scenario.controllers, cluster.pods
    foreign = 0
    previous_nodes = {key_of(pod): pod.spec.node_name for pod, _ in cluster.victims}
    previous_nodes |= scenario.evicted
    for key in cluster.arrivals:
        pod = pods.get(key)
        if pod is None:
            continue
        origin: dict[str, Any] = {
            "previous_node": previous_nodes.get(key, ""),
            "workload": str(workloads.workload_of(pod) or ""),
        }
        if pod.spec.node_name:
            placed.append(ScheduledPod(pod=key, node=pod.spec.node_name, **origin))
        elif pod.spec.scheduler_name in cluster.scheduler.profiles:
            unplaced.append(_unplaced(cluster, key, pod, origin))
        else:
            foreign += 1
    spread_before = PodSpread(
        scenario.before.of(NODES), scenario.before.of(PODS).values(), workloads
    )
    spread_after = PodSpread(cluster.api.store(NODES), pods.values(), workloads)
    return ScenarioResult(
        arrivals=len(placed) + len(unplaced),
        placed=tuple(placed),
        unplaced=tuple(unplaced),
        victims=tuple(
            VictimPod(
                pod=key_of(pod),
                node=pod.spec.node_name,
                preemptor=preemptor,
                node_after=cluster.node_of(key_of(pod)),
            )
            for pod, preemptor in cluster.victims
        ),
        lost=tuple(scenario.lost),
        removed=tuple(scenario.removed),
        added_nodes=tuple(scenario.added_nodes),
        other_schedulers=foreign,
        before=before,
        after=measure(cluster.table, shapes),
        spread=compare_spread(spread_before, spread_after),
        virtual_seconds=round(cluster.virtual_seconds, 3),
        notes=tuple(scenario.notes),
    )


def _unplaced(cluster: SimulatedCluster, key: str, pod: Pod, origin: dict[str, Any]) -> UnplacedPod:
    condition = condition_of(pod, POD_SCHEDULED)
    queued = cluster.scheduler.queue.get(key)
    reason: Any = "Waiting"
    plugins: tuple[str, ...] = ()
    if queued is not None and queued.gated:
        reason, plugins = "SchedulingGated", (queued.gating_plugin,)
    elif condition is not None and condition.reason == "SchedulerError":
        reason = "SchedulerError"
    elif queued is not None:
        reason, plugins = "Unschedulable", tuple(sorted(queued.rejectors))
    return UnplacedPod(
        pod=key,
        reason=reason,
        message=cluster.message(key),
        plugins=plugins,
        rejections=cluster.rejections(key) if reason == "Unschedulable" else (),
        nominated_node=pod.status.nominated_node_name,
        **origin,
    )


def timings_of(cluster: SimulatedCluster, load_seconds: float, schedule_seconds: float) -> Timings:
    """Return how long everything took."""
    taken = np.array(cluster.decision_seconds or [0.0]) * 1000
    return Timings(
        load_seconds=load_seconds,
        schedule_seconds=schedule_seconds,
        decisions=len(cluster.decision_seconds),
        decision_mean_ms=float(taken.mean()),
        decision_p99_ms=float(np.percentile(taken, 99)),
    )
