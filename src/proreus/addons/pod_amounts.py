"""Requests and limits of pods, as the originals of the add-ons count them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proreus.objects import Pod
from proreus.objects.quantity import amounts_of

Amounts = Mapping[str, int]
"""Amounts by resource: milli-CPU, bytes, whole numbers."""

CPU_AND_MEMORY = ("cpu", "memory")


def count(total: dict[str, int], amounts: Amounts, sign: int = 1) -> None:
    """Add amounts to a total, or take them back with ``sign`` -1; drop zeros."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount
        if not total[name]:
            del total[name]


def added(amounts: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of amounts."""
    total: dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


def requests_of(pod: Pod, *, limits: bool = False, overhead: bool = True) -> dict[str, int]:
    """Return the requests (or limits) of a pod.

    The sum of the containers or, where that is more, an init container alone; then ``overhead``.
    Sidecars count as plain init containers, as in the originals.
    """
    apps, inits = (
        [amounts_of(one.resources.limits if limits else one.resources.requests) for one in some]
        for some in (pod.spec.containers, pod.spec.init_containers)
    )
    found = added(apps)
    for one in inits:
        found |= {name: max(found.get(name, 0), amount) for name, amount in one.items()}
    return added((found, amounts_of(pod.spec.overhead))) if overhead else found


def effective_amounts(
    pod: Pod,
    *,
    limits: bool = False,
    overhead: bool = True,
    resources: Iterable[str] = CPU_AND_MEMORY,
) -> dict[str, int]:
    """Return ``requests_of`` for some resources, 0 where the pod has none."""
    found = requests_of(pod, limits=limits, overhead=overhead)
    return {name: found.get(name, 0) for name in resources}


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts as Kubernetes writes them: ``1500m`` of CPU, whole numbers of others."""
    return {name: _quantity(name, amounts[name]) for name in sorted(amounts)}


def _quantity(name: str, amount: int) -> str:
    if name != "cpu":
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)
