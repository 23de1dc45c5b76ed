"""Sums the resources of pods, and writes them as a status does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proreus.addons.pod_amounts import added, requests_of
from proreus.objects import Pod
from proreus.objects.pod import is_terminal


def requested(pods: Iterable[Pod]) -> dict[str, int]:
    """Return the requests of pods: CPU in millicores, other resources in their own units."""
    return added(requests_of(pod) for pod in pods)


def is_assigned(pod: Pod) -> bool:
    """Return whether a pod has a node and has not finished."""
    return bool(pod.spec.node_name) and not is_terminal(pod)


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts as Kubernetes writes them: ``1500m`` of CPU, whole numbers of others."""
    return {name: _quantity(name, amounts[name]) for name in sorted(amounts)}


def _quantity(name: str, amount: int) -> str:
    if name != "cpu":
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)
