"""Estimates the use of a pod: a share of its limits, or requests where these are higher.

Worked example: a container with a request of 1 CPU and a limit of 2 is estimated at 85 % of 2 CPUs,
1700m; without either it is 250m.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import floor
from typing import Any, NamedTuple

from proreus.addons.load_aware_scheduling.args import LoadAwareSchedulingArgs
from proreus.addons.pod_amounts import CPU_AND_MEMORY, effective_amounts
from proreus.framework import logger
from proreus.objects import Pod, key_of
from proreus.objects.codec import UNDECODABLE

log = logger(__name__)

DEFAULTS = {"cpu": 250, "memory": 200 * 2**20}
"""The estimate of a pod without requests and limits: milli-CPU, bytes."""
MOST_USED = 2**52
"""More than any node has, and the sum of a thousand such estimates fits an int64: limits of pods
are not checked."""
_MOST_PERCENT = 2**31

_ANNOTATION = "scheduling.koordinator.sh/load-estimated-"
SCALING_FACTORS = f"{_ANNOTATION}scaling-factors"
SECONDS_AFTER_POD_SCHEDULED = f"{_ANNOTATION}seconds-after-pod-scheduled"
SECONDS_AFTER_INITIALIZED = f"{_ANNOTATION}seconds-after-initialized"

_BATCH_PRIORITIES = range(5000, 6000)
_MID_PRIORITIES = range(7000, 8000)


class PodEstimate(NamedTuple):
    """The estimated use of a pod (milli-CPU, bytes), and the time that it counts in any case.

    ``key``: ``namespace/name``.
    """

    key: str
    amounts: tuple[int, int]
    seconds_after_pod_scheduled: float
    seconds_after_initialized: float


class Estimator:
    """Estimates pods by the arguments and, where these allow it, by annotations."""

    def __init__(self, args: LoadAwareSchedulingArgs) -> None:
        self._args = args

    def estimate(self, pod: Pod) -> PodEstimate:
        """Return the estimated use of a pod."""
        args, annotations = self._args, pod.metadata.annotations
        if not args.allow_customize_estimation:
            annotations = {}
        after_scheduled = args.estimated_seconds_after_pod_scheduled or 0
        after_initialized = args.estimated_seconds_after_initialized or 0
        return PodEstimate(
            key_of(pod),
            self._amounts(pod, {**args.estimated_scaling_factors, **_factors(annotations)}),
            _seconds(annotations.get(SECONDS_AFTER_POD_SCHEDULED), after_scheduled),
            _seconds(annotations.get(SECONDS_AFTER_INITIALIZED), after_initialized),
        )

    def _amounts(self, pod: Pod, factors: Mapping[str, int]) -> tuple[int, int]:
        # Pods of these bands request resources of their own; their CPU is in thousandths too.
        names = tuple(resource_of(pod, name) for name in CPU_AND_MEMORY)
        requests = effective_amounts(pod, resources=names)
        limits = effective_amounts(pod, limits=True, resources=names)
        cpu, memory = (
            _scaled(requests[name], limits[name], factors.get(resource, 0), DEFAULTS[resource])
            for resource, name in zip(CPU_AND_MEMORY, names, strict=True)
        )
        return cpu, memory


def resource_of(pod: Pod, resource: str) -> str:
    """Return the name of cpu or memory in the requests of a pod, by its priority."""
    priority = pod.spec.priority or 0
    if priority in _BATCH_PRIORITIES:
        return f"kubernetes.io/batch-{resource}"
    if priority in _MID_PRIORITIES:
        return f"kubernetes.io/mid-{resource}"
    return resource


def _scaled(request: int, limit: int, factor: int, default: int) -> int:
    most = min(max(limit, request), MOST_USED)
    if not factor:
        return 0
    if not most:
        return default
    estimated = min(floor(most * factor / 100 + 0.5), MOST_USED)
    return min(estimated, limit) if limit else estimated


def _factors(annotations: Mapping[str, str]) -> dict[str, int]:
    text = annotations.get(SCALING_FACTORS)
    if text is None:
        return {}
    try:
        found: Any = json.loads(text)
        factors = {name: int(factor) for name, factor in found.items() if name in CPU_AND_MEMORY}
        # A negative estimate would be room that the node does not have.
        return {name: min(max(factor, 0), _MOST_PERCENT) for name, factor in factors.items()}
    except (*UNDECODABLE, TypeError, AttributeError) as error:
        log.warning("Annotation of a pod is ignored", annotation=SCALING_FACTORS, err=error)
        return {}


def _seconds(text: str | None, default: float) -> float:
    try:
        return default if text is None else float(text)
    except ValueError as error:
        log.warning("Annotation of a pod is ignored", annotation=_ANNOTATION, err=error)
        return default
