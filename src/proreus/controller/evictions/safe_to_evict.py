"""The annotation by which somebody keeps a pod where it is, as cluster autoscalers read it."""

from __future__ import annotations

from proreus.objects import Pod

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Pods with the value "false" stay where they are."""


def is_safe_to_evict(pod: Pod) -> bool:
    """Return whether nobody has asked to leave a pod where it is."""
    return pod.metadata.annotations.get(SAFE_TO_EVICT) != "false"
