"""Sums the resources of pods."""

from __future__ import annotations

from collections.abc import Iterable

from proreus.addons.pod_amounts import added, requests_of
from proreus.objects import Pod
from proreus.objects.pod import is_terminal


def requested(pods: Iterable[Pod]) -> dict[str, int]:
    """Return the requests of pods: CPU in millicores, other resources in their own units."""
    return added(requests_of(pod) for pod in pods)


def is_assigned(pod: Pod) -> bool:
    """Return whether a pod has a node and has not finished."""
    return bool(pod.spec.node_name) and not is_terminal(pod)
