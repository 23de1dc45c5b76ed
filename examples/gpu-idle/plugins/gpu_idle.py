"""GpuIdle: of the nodes that can take a GPU pod, prefers the one with the most idle GPUs."""

from __future__ import annotations

from collections.abc import Hashable

from pydantic import Field

from proreus.framework import (
    CycleState,
    IntArray,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    PreScorePlugin,
    ScorePlugin,
    Status,
    default_normalize,
)


class GpuIdle(PreScorePlugin, ScorePlugin):
    """A raw score is a number of idle GPUs; the most idle node gets 100, the others their share."""

    class Args(PluginArgs):
        """Which resource counts."""

        resource: str = Field("nvidia.com/gpu", description="The extended resource to look at.")

    args: Args
    row_local = True  # idle GPUs change with the node's pods, and that is a change of its row

    def sign(self, pod: PodInfo) -> Hashable:
        return ()  # pre_score skips pods that ask for no GPU; all others are equivalent

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if pod.requests.amounts.get(self.args.resource) else Status.skip()

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        gpu = self.args.resource
        return max(0, node.allocatable.get(gpu, 0) - node.requested.get(gpu, 0))

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        gpu = self.args.resource
        idle: IntArray = nodes.allocatable[gpu] - nodes.requested[gpu]
        return idle.clip(min=0)

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        return default_normalize(scores)
