"""BusinessWeight: each line of business prefers pools of nodes by weights of its own.

Its weights are a table between the business of a pod and the pool of a node.

Worked example: payments weigh gold 100 and silver 40. A pod of payments gets 100 on nodes of gold,
40 on those of silver, and 0 (or ``weights.payments.""``) on all others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Annotated

from pydantic import Field

from proreus.framework import (
    MAX_SCORE,
    CycleState,
    FeatureGates,
    Handle,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    PreScorePlugin,
    ScorePlugin,
    Status,
    field_errors,
)
from proreus.objects import NAMESPACES


class BusinessWeightArgs(PluginArgs):
    """The labels, and the table between their values.

    ``namespace_label``: label of the namespace, for pods without the label; empty to ignore
    namespaces. ``default_business``: for all other pods; empty if they have no preference.
    """

    pod_label: str = Field("proreus.dev/business", min_length=1)
    namespace_label: str = ""
    node_label: str = Field("proreus.dev/pool", min_length=1)
    default_business: str = ""
    weights: dict[str, dict[str, Annotated[int, Field(ge=0, le=MAX_SCORE)]]] = {}

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that the default business has weights."""
        if self.default_business and self.default_business not in self.weights:
            where = field_errors.child(path, "defaultBusiness")
            yield field_errors.invalid(where, self.default_business, "must be in weights")


class BusinessWeight(PreScorePlugin, ScorePlugin):
    """Prefers the pools of a pod's line of business."""

    Args = BusinessWeightArgs
    args: BusinessWeightArgs
    row_local = True
    looks_at_pods = False

    def __init__(self, args: BusinessWeightArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._namespaces = handle.store(NAMESPACES)

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the business of the pod, or "" for one without weights."""
        business = self._business_of(pod)
        return business if business in self.args.weights else ""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip pods of a business that has no preference."""
        return None if self._weights_of(pod) else Status.skip()

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by the weight of its pool."""
        return self._weights_of(pod).get(node.labels.get(self.args.node_label, ""), 0)

    def _weights_of(self, pod: PodInfo) -> Mapping[str, int]:
        return self.args.weights.get(self._business_of(pod), {})

    def _business_of(self, pod: PodInfo) -> str:
        args = self.args
        business = pod.labels.get(args.pod_label, "")
        if not business and args.namespace_label:
            namespace = self._namespaces.get(pod.pod.metadata.namespace)
            if namespace is not None:
                business = namespace.metadata.labels.get(args.namespace_label, "")
        return business or args.default_business
