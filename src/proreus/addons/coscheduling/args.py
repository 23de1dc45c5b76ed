"""The arguments of Coscheduling."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from proreus.framework import PluginArgs


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
    permit_waiting_time_seconds: int = Field(60, ge=0)
    pod_group_backoff_seconds: int = Field(0, ge=0)
    pod_group_reject_percentage: int = Field(10, ge=0, le=100)
