"""GangScheduling's reasons, as the emulated version of Kubernetes has them."""

from __future__ import annotations

from proreus.framework.pod_group import PlacementProgress
from proreus.framework.workload_forest import Group, WorkloadForest
from proreus.objects.scheduling import EntityKey, PodGroup


class GangTexts:
    """The reasons since Kubernetes 1.38."""

    def no_root(self, group: EntityKey, forest: WorkloadForest) -> str:
        """Return the reason for a pod whose PodGroup, or a group above that, does not exist."""
        text = "or one of its composite pod group ancestors has not been created yet"
        return f'pod group "{group.name}" {text}'

    def not_ready(self, root: Group) -> str:
        """Return the reason for a pod below a root that has too few pods, or child groups."""
        if root.is_basic:
            return f"waiting for {root.key} tree to have at least one ready child group"
        return f"waiting for {root.key} to meet its quorum"

    def cannot(self, needed: int, progress: PlacementProgress) -> str:
        """Return the reason for a group of which ``needed`` cannot be placed any more."""
        return f"{_minimum(needed)} cannot be satisfied: {_so_far(progress)}"

    def not_yet(self, needed: int, progress: PlacementProgress) -> str:
        """Return the reason for a group of which fewer than ``needed`` are placed so far."""
        return f"{_minimum(needed)} is not yet satisfied: {_so_far(progress)}"


def _minimum(needed: int) -> str:
    return f"scheduling policy's minimum threshold ({needed})"


def _so_far(progress: PlacementProgress) -> str:
    return (
        f"{progress.scheduled} scheduled, {progress.unschedulable} unschedulable, "
        f"{progress.remaining} not-evaluated"
    )


class GangTextsOfMinCount(GangTexts):
    """The reasons up to Kubernetes 1.37."""

    def no_root(self, group: EntityKey, forest: WorkloadForest) -> str:
        """Return the reason for a pod whose PodGroup, or a group above that, does not exist."""
        topmost = forest.topmost_known(group)
        if topmost is None:
            return f'waiting for pods\'s pod group "{group.name}" to appear in scheduling queue'
        text = f"composite pod group object not found in state for {forest.parent_of(topmost)}"
        return f"failed to build hierarchy snapshot: {text}"

    def not_ready(self, root: Group) -> str:
        """Return the reason for a pod below a root that has too few pods, or child groups."""
        if isinstance(root, PodGroup):
            return "waiting for minCount pods from a gang to appear in scheduling queue"
        return f'waiting for composite pod group "{root.metadata.name}" tree to meet quorum'

    def cannot(self, needed: int, progress: PlacementProgress) -> str:
        """Return the reason for a group of which ``needed`` cannot be placed any more."""
        so_far = f"{progress.scheduled} scheduled, {progress.remaining} remaining"
        return f"minCount ({needed}) cannot be satisfied: {so_far}"

    def not_yet(self, needed: int, progress: PlacementProgress) -> str:
        """Return the reason for a group of which fewer than ``needed`` are placed so far."""
        so_far = f"{progress.scheduled} scheduled, {progress.remaining} remaining"
        return f"minCount ({needed}) is not yet satisfied: {so_far}"
