"""The arguments of Coscheduling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from proreus.framework import FeatureGates, PluginArgs, field_errors


class CoschedulingArgs(PluginArgs):
    """The mode, the time that pods wait for their group, and the treatment of a failed group.

    ``mode``: ``permit`` holds members at Permit until there are enough, as the original; ``plan``
    places a group as a whole. The other arguments are of ``permit`` alone.
    """

    # Arguments of Koordinator.
    arguments_without_effect = {
        "defaultTimeout": "permitWaitingTimeSeconds is how long pods wait",
        "controllerWorkers": "`proreus controller` writes the statuses of PodGroups",
        "skipCheckScheduleCycle": "gangs have no schedule cycles",
        "enablePreemption": "the add-on GangPreemption preempts for gangs",
        "awareNetworkTopology": "the add-on GroupTopology places gangs by topology",
    }
    points_without_effect = frozenset({"preScore", "score", "preBind", "postBind"})

    mode: Literal["permit", "plan"] = "permit"
    permit_waiting_time_seconds: int = 60
    pod_group_backoff_seconds: int = 0
    pod_group_reject_percentage: int = 10

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the ranges."""
        for name, value in (
            ("permitWaitingTimeSeconds", self.permit_waiting_time_seconds),
            ("podGroupBackoffSeconds", self.pod_group_backoff_seconds),
        ):
            if value < 0:
                yield field_errors.invalid(field_errors.child(path, name), value, "must be >= 0")
        if not 0 <= self.pod_group_reject_percentage <= 100:
            where = field_errors.child(path, "podGroupRejectPercentage")
            value = self.pod_group_reject_percentage
            yield field_errors.invalid(where, value, "not in valid range [0, 100]")
