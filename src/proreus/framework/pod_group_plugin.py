"""The extension points of PodGroups, as base classes like those of ``plugin``.

In the order of a group's cycle: who says which pods are a group, where it may go, whether it fits
there, which place is the best, and what to do if there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from proreus.framework.cycle_state import CycleState
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import Plugin
from proreus.framework.pod_group import (
    Placement,
    PlacementProgress,
    PodGroupAssignments,
    PodGroupDescription,
    PodGroupInfo,
    PodGroupPostFilterResult,
    SchedulePodGroup,
)
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray
from proreus.objects.pod import Pod


class PodGroupSourcePlugin(Plugin):
    """Names groups of pods that are scheduled as a whole, though the API has no PodGroup for them.

    It is no extension point of the configuration: where a profile enables such a plugin at any
    point, its pods are asked about. The pods of a group wait in the queue as one, and are placed
    together or not at all, as those of a PodGroup (gate GenericWorkload, which is not needed).

    The plugin provides the groups: ``handle.put_pod_group`` as soon as it knows one, also from
    ``handle.on_change(PODS, …)``, which comes before the pod is queued. Until then pods that name
    the group wait. Whether enough of a group fits is for ``PlacementFeasiblePlugin`` to say. Unlike
    a PodGroup, a group that was rejected waits for an event that helps one of its rejected pods.
    """

    def pod_group_name(self, pod: Pod) -> str:
        """Return the name of a pod's group in its namespace, with a slash; "" schedules it alone.

        Called whenever the pod is read: it must be cheap, and depend on the pod alone.
        """
        raise NotImplementedError

    def pod_rank(self, pod: Pod) -> tuple[int, ...]:
        """Return a pod's place in its group, whose pods are tried in this order.

        Pods with equal ranks are tried in the order of the queue.
        """
        return ()

    def describe_group(self, pod: Pod) -> PodGroupDescription | None:
        """Return the group of a pod for ``proreus explain``; None if it has none, or the group that
        the plugin has provided says everything."""
        return None


class PlacementGeneratePlugin(Plugin):
    """Generates the placements of a PodGroup. Those of several plugins are intersected; up to
    Kubernetes 1.37 a profile has at most one such plugin."""

    def generate_placements(
        self, state: CycleState, group: PodGroupInfo, nodes: NodeTable
    ) -> Sequence[Placement] | Status:
        """Called once a cycle of a group, with the nodes that its parent's placement leaves, the
        whole cluster as a rule. A dry run is made in each placement, of ``OrderedPlacements``
        until the group fits. An empty result, or Unschedulable, rejects the group."""
        raise NotImplementedError


class PlacementFeasiblePlugin(Plugin):
    """Decides whether a PodGroup can still be scheduled, and whether enough of it is.

    Each plugin that a profile enables at any point is called, unless ``placementFeasible`` disables
    it. kube-scheduler's own plugins are called where they are enabled there (since Kubernetes 1.38,
    whose configuration has that point).
    """

    def placement_feasible(
        self, state: CycleState, group: PodGroupInfo, progress: PlacementProgress
    ) -> Status | None:
        """Called before the first pod (or child group) is tried, and after each of them.

        Unschedulable: the group cannot be scheduled any more, and nothing else is tried. Wait: not
        enough yet. None: enough, the rest is welcome.
        """
        raise NotImplementedError


class PlacementScorePlugin(Plugin):
    """Scores the placements in which a PodGroup fits."""

    def score_placement(
        self, state: CycleState, group: PodGroupInfo, assignments: PodGroupAssignments
    ) -> int | Status:
        """Score one placement: an int in 0..100, or any int if ``normalize_placements`` is
        defined. Called only if there are several."""
        raise NotImplementedError

    def normalize_placements(
        self, state: CycleState, group: PodGroupInfo, scores: IntArray
    ) -> IntArray | Status:
        """Return the scores of all placements scaled to 0..100. Must not change its argument."""
        return scores


class RankNodesPlugin(Plugin):
    """Ranks nodes, for pods of a group that is tried on nodes without its potential victims.

    It is no extension point of the configuration: a plugin is asked that is enabled at
    PodGroupPostFilter and Reserve.
    """

    def rank_nodes(self) -> IntArray | None:
        """Return the rank of each row of ``handle.nodes``; None if all are equal.

        Called for each pod of a group. Of the nodes that fit it those of the lowest rank are
        scored.
        """
        raise NotImplementedError


class PodGroupPostFilterPlugin(Plugin):
    """Tries to make a whole PodGroup schedulable that did not fit (gate GenericWorkload).

    With the plugins of Kubernetes 1.36 it is enabled together with PostFilter, and called with gate
    WorkloadAwarePreemption only.
    """

    async def pod_group_post_filter(
        self, state: CycleState, group: PodGroupInfo, schedule: SchedulePodGroup
    ) -> PodGroupPostFilterResult:
        """Called once when the group did not fit, after its dry run was undone.

        ``state``: what plugins keep about the group's cycle. ``schedule`` makes another dry run of
        the group, without any PostFilter; the plugin may have removed pods from ``handle.nodes``,
        and must have added them again when it returns. Success and Unresolvable end the point,
        after Unschedulable the next plugin is called.
        """
        raise NotImplementedError
