"""The QoS class of a pod."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.addons.pod_amounts import CPU_AND_MEMORY
from proreus.objects import Pod, ResourceRequirements, parse_amount


def qos_class(pod: Pod) -> str:
    """Return Guaranteed, Burstable or BestEffort (``v1qos.ComputePodQOS``)."""
    requests, limits = dict.fromkeys(CPU_AND_MEMORY, 0), dict.fromkeys(CPU_AND_MEMORY, 0)
    guaranteed = True
    for resources in _counted(pod):
        for sums, given in ((requests, resources.requests), (limits, resources.limits)):
            for name in CPU_AND_MEMORY:
                sums[name] += parse_amount(name, given.get(name, 0))
        guaranteed = guaranteed and all(
            parse_amount(name, resources.limits.get(name, 0)) > 0 for name in CPU_AND_MEMORY
        )
    if not any((*requests.values(), *limits.values())):
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _counted(pod: Pod) -> Iterator[ResourceRequirements]:
    whole = pod.spec.resources
    if whole is not None and (whole.requests or whole.limits):
        yield whole
        return
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        yield container.resources
