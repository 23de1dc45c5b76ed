"""PodGroupPodsCount: prefer the placement that fits more pods of the group (gate
TopologyAwareWorkloadScheduling)."""

from __future__ import annotations

from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import MAX_SCORE
from proreus.framework.pod_group import PodGroupAssignments, PodGroupInfo
from proreus.framework.pod_group_plugin import PlacementScorePlugin
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray


class PodGroupPodsCount(PlacementScorePlugin):
    """Counts the pods that have a node already, and those that fit the placement."""

    def score_placement(
        self, state: CycleState, group: PodGroupInfo, assignments: PodGroupAssignments
    ) -> int:
        """Return the number of pods."""
        states = (self.handle.pod_group_states.get(leaf.key) for leaf in group.leaves)
        scheduled = sum(state.scheduled_count for state in states if state is not None)
        return scheduled + len(assignments.pods)

    def normalize_placements(
        self, state: CycleState, group: PodGroupInfo, scores: IntArray
    ) -> IntArray | Status:
        """Scale the scores to 100 for the placement with the most pods."""
        most = int(scores.max(initial=0))
        if most == 0:
            return Status.error(
                "no pods from pod group are assigned to any of the candidate placements"
            )
        return scores * MAX_SCORE // most
