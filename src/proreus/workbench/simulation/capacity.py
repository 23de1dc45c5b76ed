"""Counts further equal pods that fit, and names the resource that runs out.

The scheduler places pod after pod until one finds no node, so that spreading, affinity, ports,
volumes and out-of-tree plugins count as they do for real pods. Nobody is preempted for these.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from proreus.base.errors import ConfigError
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.workbench.simulation.results import NodesRejected, Utilisation
from proreus.workbench.simulation.scenario import DEFAULT_SCHEDULER, Scenario, with_scheduler
from proreus.workbench.simulation.simulated_cluster import Settings, SimulatedCluster
from proreus.workbench.simulation.templates import PodTemplate, read_templates, template_of_pod
from proreus.workbench.simulation.utilisation import measure

DEFAULT_LIMIT = 100_000
_MOST_AT_ONCE = 256
_replace = msgspec.structs.replace


class PodCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of further pods like ``pod`` that fit.

    ``exhausted``: whether one more does not fit; False where the search ended at its limit.
    ``limits``: why the nodes reject the next one, by plugin and reason, the most frequent first.
    ``message``: the same as the scheduler says it. ``after``: the cluster with all of them.
    """

    pod: str
    fits: int
    exhausted: bool
    limits: tuple[NodesRejected, ...]
    message: str
    after: Utilisation


def measure_capacity(
    scenario: Scenario, settings: Settings, references: list[str], limit: int = DEFAULT_LIMIT
) -> list[PodCapacity]:
    """Return the capacity for each pod, after the scenario and on its own.

    ``references``: files, each of whose pods is asked about, or ``pod/NAMESPACE/NAME``. Raises
    ``ConfigError``.
    """
    templates = [one for text in references for one in _templates(scenario, text)]
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_measure(scenario, settings, templates, limit))


def _templates(scenario: Scenario, reference: str) -> list[PodTemplate]:
    if not reference.startswith("pod/"):
        templates, _ = read_templates(Path(reference))
        if not templates:
            raise ConfigError(f"{reference}: there is no pod in it")
        return templates
    key = reference.removeprefix("pod/")
    pod = scenario.objects.of(PODS).get(key if "/" in key else f"default/{key}")
    if pod is None:
        raise ConfigError(f"--capacity {reference}: there is no pod {key}")
    return [template_of_pod(pod)]


async def _measure(
    scenario: Scenario, settings: Settings, templates: list[PodTemplate], limit: int
) -> list[PodCapacity]:
    cluster = SimulatedCluster(settings)
    profiles = list(cluster.scheduler.profiles)
    probes = [_probe(scenario, template, profiles) for template in templates]
    await cluster.load(scenario.before)
    shapes = cluster.shapes_with([*scenario.pending(), *probes])
    await cluster.change(scenario.before, scenario.objects_for(profiles)[0])
    await cluster.schedule()
    found = []
    for probe in probes:
        names = await _fill(cluster, probe, limit, settings)
        rejected = [name for name in names if not cluster.node_of(name)]
        first = rejected[0] if rejected else ""
        found.append(
            PodCapacity(
                pod=f"{probe.metadata.namespace}/{probe.metadata.name}",
                fits=len(names) - len(rejected),
                exhausted=bool(rejected),
                limits=cluster.rejections(first),
                message=cluster.message(first),
                after=measure(cluster.table, shapes),
            )
        )
        for name in names:
            cluster.remove_pod(name)
    return found


async def _fill(cluster: SimulatedCluster, probe: Pod, limit: int, settings: Settings) -> list[str]:
    """Add pods until one is rejected; return the keys of all."""
    names: list[str] = []
    count = 1
    while len(names) < limit:
        fresh = [_copy(probe, len(names) + number) for number in range(count)]
        for pod in fresh[: limit - len(names)]:
            cluster.put_pod(pod)
            names.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
        await cluster.schedule()
        settings.progress(len(names), limit)
        if any(not cluster.node_of(name) for name in names[-count:]):
            break
        count = min(2 * count, _MOST_AT_ONCE)
    return names


def _probe(scenario: Scenario, template: PodTemplate, profiles: list[str]) -> Pod:
    name = template.name
    while f"{template.namespace}/{name}" in scenario.objects.of(PODS):
        name += "-more"
    plain = template.pod(name, 0)
    pod = scenario.admission.admit(template.place, plain)
    if not plain["spec"].get("schedulerName") and DEFAULT_SCHEDULER not in profiles:
        pod = with_scheduler(pod, profiles[0])
    return _replace(pod, spec=_replace(pod.spec, preemption_policy="Never"))


def _copy(pod: Pod, number: int) -> Pod:
    meta = pod.metadata
    name = f"{meta.name}-{number}"
    return _replace(pod, metadata=_replace(meta, name=name, uid=f"{meta.uid}-{number}"))
