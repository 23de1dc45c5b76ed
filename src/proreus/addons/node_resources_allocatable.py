"""NodeResourcesAllocatable: prefer nodes by their size, whatever runs on them.

Source: kubernetes-sigs/scheduler-plugins, ``pkg/noderesources``.

The score is a weighted mean of a node's allocatable resources, stretched to 0..100.

Worked example with the default weights, mode Least: a node of 4 CPUs and 8 GiB has
``-(4000 * 2**20 + 8 * 2**30) / (2**20 + 1)``, which is less negative than that of a node twice the
size. So the smaller one gets 100 and the larger one 0.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from pydantic import Field

from proreus.addons.min_max import min_max_normalize
from proreus.framework import (
    ConfigModel,
    CycleState,
    IntArray,
    NodeInfo,
    PluginArgs,
    PodInfo,
    ScorePlugin,
)


class AllocatableResource(ConfigModel):
    """A resource of the node, and its weight."""

    name: str
    weight: int = Field(1, ge=1)


class NodeResourcesAllocatableArgs(PluginArgs):
    """The preferred size and the weights. By default a millicore weighs as much as a MiB."""

    mode: Literal["Least", "Most"] = "Least"
    resources: tuple[AllocatableResource, ...] = (
        AllocatableResource(name="cpu", weight=2**20),
        AllocatableResource(name="memory", weight=1),
    )


class NodeResourcesAllocatable(ScorePlugin):
    """Prefer nodes with the least (or most) allocatable resources, whatever pods request."""

    Args = NodeResourcesAllocatableArgs
    args: NodeResourcesAllocatableArgs
    row_local = True
    looks_at_pods = False

    def sign(self, pod: PodInfo) -> Hashable:
        """Return one signature for all pods: none of their fields is read."""
        return ()

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by its raw mean, negative for Least."""
        resources = self.args.resources
        total = sum(node.allocatable[one.name] * one.weight for one in resources)
        # The sum is not negative, so that this truncates; the sign comes after it.
        mean = total // (sum(one.weight for one in resources) or 1)
        return -mean if self.args.mode == "Least" else mean

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Stretch the range of the raw scores to 0..100; equal ones become 0."""
        return min_max_normalize(scores)
