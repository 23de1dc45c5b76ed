"""NodeResourcesBalancedAllocation: prefer nodes where the pod balances the use of resources.

The score is how much the balance between the used fractions *changes* with the pod; 75 if it does
not. Floating point, in Go's order of operations. A pod counts with the resources in its status if
these are more than its requests: as on its node, and unlike in NodeResourcesFit.

Worked example: CPU 50 % and memory 10 % used, with the pod both 50 %. The standard deviation drops
from 0.2 to 0, the balance rises from 80 to 100: 50 + (50 + 100 - 80) // 2 = 85.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache, reduce
from math import sqrt
from operator import add
from typing import Self

import numpy as np

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import child, duplicate, invalid, item
from proreus.config.fields import PluginArgs
from proreus.framework.cycle_state import CycleState
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import MAX_SCORE, PreScorePlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo, PodRequests
from proreus.framework.status import Status
from proreus.framework.verdicts import FloatArray, IntArray
from proreus.plugins.dynamic_resources.scored_devices import ScoredDevices
from proreus.plugins.resource_scoring import (
    ColumnLoad,
    ScoredRequest,
    loads_of,
    score_rows,
    scored_requests_of,
    taken_of,
)
from proreus.plugins.resource_scoring_args import ResourceSpec, weighted


class NodeResourcesBalancedAllocationArgs(PluginArgs):
    """The resources whose used fractions are balanced; all have weight 1."""

    go_type = "v1.NodeResourcesBalancedAllocationArgs"

    resources: tuple[ResourceSpec, ...] = ()

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Balance cpu and memory if no resources are given; weight 0 means 1."""
        return self.model_copy(update={"resources": weighted(self.resources)})

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that resources are unique and have weight 1."""
        seen: set[str] = set()
        for index, resource in enumerate(self.resources):
            where = item(child(path, "resources"), index)
            if resource.name in seen:
                yield duplicate(child(where, "name"), resource.name)
            seen.add(resource.name)
            if resource.weight != 1:
                yield invalid(child(where, "weight"), resource.weight, "must be 1")


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Scores by the change in balance; skips pods that request none of the resources."""

    Args = NodeResourcesBalancedAllocationArgs
    row_local = True

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        problems = tuple(args.problems("", handle.feature_gates))
        if problems:
            raise ConfigError(*problems)
        self._resources = args.resources
        self._scored_devices = ScoredDevices.of(handle, [r.name for r in self._resources])
        # Kept for the requests of the last pod: as a rule the next one has the same.
        self._scored_requests = lru_cache(maxsize=1)(self._scored_requests_of)

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Sign the amounts; None if devices affect the score: they change without their node."""
        requests = pod.resized
        if self._scored_devices is not None and self._scored_devices.affects_score(
            requests.amounts
        ):
            return None
        return requests.key

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods that request none of the resources: they change no balance."""
        amounts = pod.resized.amounts
        return None if any(amounts.get(r.name) for r in self._resources) else Status.skip()

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node."""
        scored_requests = self._scored_requests(pod.resized)
        if not scored_requests:
            return 0
        before, after = [], []
        loads = loads_of(scored_requests, node, self._scored_devices)
        for requested, wanted, capacity, _ in loads:
            # Go divides floats: a quotient of integers beyond 2^53 would be rounded differently.
            # Pods that were bound by others may request more than there is.
            limit = float(capacity)
            taken = requested + wanted
            before.append(1.0 if requested > capacity else requested / limit)
            after.append(1.0 if taken > capacity else taken / limit)
        return 50 + (50 + _balance(after) - _balance(before)) // 2

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Score all nodes."""
        scored_requests = self._scored_requests(pod.resized)
        return (
            score_rows(scored_requests, nodes, _changes, self._scored_devices)
            if scored_requests
            else 0
        )

    def _scored_requests_of(self, requests: PodRequests) -> tuple[ScoredRequest, ...]:
        """Return the scored requests; () if none is above 0."""
        # PreScore would have skipped such a pod, but it may be disabled.
        scored_requests = scored_requests_of(self._resources, requests.amounts, defaults=False)
        return scored_requests if any(one.wanted for one in scored_requests) else ()


def _balance(fractions: list[float]) -> int:
    """Return 100 if all resources are used to the same fraction, less if they differ."""
    count = len(fractions)
    if count < 2:
        return MAX_SCORE
    # Of two, half the difference is the deviation; kube-scheduler rounds it this way.
    if count == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    else:
        # Not sum(): since Python 3.12 it adds floats more exactly than Go does.
        mean = reduce(add, fractions) / count
        deviation = sqrt(reduce(add, ((f - mean) * (f - mean) for f in fractions)) / count)
    return int((1.0 - deviation) * MAX_SCORE)


def _changes(loads: Sequence[ColumnLoad], rows: int) -> IntArray:
    if len(loads) < 2:
        return np.full(rows, 75, dtype=np.int64)
    scores = _balances(
        [taken_of(load.requested, load.wanted, load.capacity) / load.capacity for load in loads]
    )
    scores -= _balances(
        [np.minimum(load.requested, load.capacity) / load.capacity for load in loads]
    )
    scores += 50
    scores //= 2
    scores += 50
    return scores


def _balances(fractions: list[FloatArray]) -> IntArray:
    """Return ``_balance`` for every row, with the same operations; overwrites its argument."""
    if len(fractions) == 2:
        deviation = fractions[0]
        deviation -= fractions[1]
        deviation /= 2
        np.abs(deviation, out=deviation)
    else:
        mean = sum(fractions[1:], start=fractions[0]) / len(fractions)
        squares = [(fraction - mean) * (fraction - mean) for fraction in fractions]
        deviation = np.sqrt(sum(squares[1:], start=squares[0]) / len(fractions))
    np.subtract(1.0, deviation, out=deviation)
    deviation *= MAX_SCORE
    return deviation.astype(np.int64)
