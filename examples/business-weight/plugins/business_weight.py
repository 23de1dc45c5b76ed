"""BusinessWeight: each line of business prefers pools of nodes by weights of its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

import numpy as np
from pydantic import Field

from proreus.framework import (
    CycleState,
    FeatureGates,
    IntArray,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    PreScorePlugin,
    ScorePlugin,
    Status,
    field_errors,
)


class BusinessWeight(PreScorePlugin, ScorePlugin):
    """A pod's label names its business, a node's label its pool; a table has the weights."""

    class Args(PluginArgs):
        """The two labels, and the table between their values."""

        pod_label: str = Field("example.com/business", description="Label of pods.")
        node_label: str = Field("example.com/pool", description="Label of nodes.")
        weights: dict[str, dict[str, int]] = Field(
            {}, description="0..100, by value of the pod's label, by value of the node's label."
        )

        def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
            for business, pools in self.weights.items():
                for pool, weight in pools.items():
                    if not 0 <= weight <= 100:
                        field = field_errors.child(path, "weights", business, pool)
                        yield field_errors.invalid(field, weight, "must be in the range 0-100")

    args: Args
    row_local = True

    def sign(self, pod: PodInfo) -> Hashable:
        return pod.labels.get(self.args.pod_label)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if self._weights_for(pod) else Status.skip()

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return self._weights_for(pod).get(node.labels.get(self.args.node_label, ""), 0)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        weights = self._weights_for(pod)
        pools = nodes.label_values(self.args.node_label).values
        # One look-up a distinct pool, then one gather; the last entry stands for "no label" (-1).
        weight_of = [weights.get(pool, 0) for pool in pools]
        absent = weights.get("", 0)
        found: IntArray = np.array([*weight_of, absent], dtype=np.int64)[
            nodes.label(self.args.node_label)
        ]
        return found

    def _weights_for(self, pod: PodInfo) -> Mapping[str, int]:
        return self.args.weights.get(pod.labels.get(self.args.pod_label, ""), {})
