"""What pods request and are limited to, as the originals of the plugins count it."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.objects import Pod, ResourceRequirements, parse_amount

CPU_AND_MEMORY = ("cpu", "memory")


def effective_amounts(
    pod: Pod,
    *,
    limits: bool = False,
    overhead: bool = True,
    resources: Iterable[str] = CPU_AND_MEMORY,
) -> dict[str, int]:
    """Return a pod's requests (or limits) of some resources: milli-CPU, bytes, whole numbers.

    The sum of the containers or, where that is more, an init container alone; then ``overhead``.
    Sidecars count as plain init containers, as in the originals.
    """
    found = {}
    for resource in resources:
        total = sum(_amount(c.resources, resource, limits) for c in pod.spec.containers)
        alone = [_amount(c.resources, resource, limits) for c in pod.spec.init_containers]
        found[resource] = max([total, *alone])
        if overhead:
            found[resource] += parse_amount(resource, pod.spec.overhead.get(resource, 0))
    return found


def _amount(requirements: ResourceRequirements, resource: str, limits: bool) -> int:
    amounts = requirements.limits if limits else requirements.requests
    return parse_amount(resource, amounts.get(resource, 0))
