"""TaintToleration: reject nodes with untolerated hard taints, score by untolerated soft ones.

Hard: NoSchedule and NoExecute. Soft: PreferNoSchedule. Worked example: three nodes with 0, 1 and 2
untolerated soft taints score 100, 50 and 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.events import (
    ADD,
    NODE,
    UPDATE_NODE_TAINT,
    UPDATE_POD_TOLERATION,
    ClusterEvent,
)
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.scores import default_normalize
from proreus.framework.status import Status
from proreus.framework.tolerations import toleration_index
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.taints import PREFER_NO_SCHEDULE, Taint

REASON = "node(s) had untolerated taint(s)"


class TaintToleration(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Rejects nodes with untolerated hard taints, and prefers those with few soft ones."""

    row_local = True
    looks_at_pods = False
    passes_without_node_name = True

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        gates = handle.feature_gates
        self._compare_numbers = gates.enabled("TaintTolerationComparisonOperators")

    def sign(self, pod: PodInfo) -> Hashable:
        """Sign the tolerations; the index of equal ones is one object."""
        return toleration_index(pod)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register nodes with other taints, and the pod's own tolerations."""
        return (
            ClusterEvent(
                NODE, ADD | UPDATE_NODE_TAINT, hint=self._is_schedulable_after_node_change
            ),
            *pod_registrations(
                self.handle.feature_gates,
                target=UPDATE_POD_TOLERATION,
                hint=_is_schedulable_after_pod_toleration_change,
            ),
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> None:
        """Pass every pod; from Kubernetes 1.37 on."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        taints = node.taints
        if not taints or self._tolerates_hard(pod, taints):
            return None
        return Status.unresolvable(REASON)

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes: each distinct set of taints once."""
        rejected = [not self._tolerates_hard(pod, taints) for taints in nodes.taint_sets.values]
        if any(rejected):
            mask = np.array(rejected, dtype=np.bool_)[nodes.taint_set]
            verdicts.reject(mask, REASON, unresolvable=True)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Never skip."""
        # Skipped, nodes would lack the score of 100 that they all have without soft taints.
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Count the soft taints that are not tolerated."""
        return self._intolerable(pod, node.taints)

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Count for all nodes: each distinct set of taints once."""
        counts = [self._intolerable(pod, taints) for taints in nodes.taint_sets.values]
        return np.array(counts, dtype=np.int64)[nodes.taint_set] if any(counts) else 0

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Give the nodes with the fewest taints 100."""
        return default_normalize(scores, reverse=True)

    def _tolerates_hard(self, pod: PodInfo, taints: tuple[Taint, ...]) -> bool:
        compare = self._compare_numbers
        untolerated = toleration_index(pod).first_untolerated(taints, compare_numbers=compare)
        return untolerated is None

    def _intolerable(self, pod: PodInfo, taints: tuple[Taint, ...]) -> int:
        soft = [taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE]
        if not soft:
            return 0
        tolerations, compare_numbers = toleration_index(pod), self._compare_numbers
        return sum(not tolerations.tolerates(taint, compare_numbers) for taint in soft)

    def _is_schedulable_after_node_change(
        self, pod: PodInfo, old: Node | None, new: Node | None
    ) -> bool:
        # Only a change from intolerable to tolerable helps; a new node counts as one.
        if new is None or not self._tolerates_hard(pod, new.spec.taints):
            return False
        return old is None or not self._tolerates_hard(pod, old.spec.taints)


def _is_schedulable_after_pod_toleration_change(
    pod: PodInfo, old: Pod | None, new: Pod | None
) -> bool:
    return new is not None and new.metadata.uid == pod.uid
