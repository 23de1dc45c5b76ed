"""The arguments: how a job is recognised, and what its pods wait for."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from proreus.framework import MAX_PERMIT_WAIT_SECONDS, PluginArgs, Seconds


class JobBarrierArgs(PluginArgs):
    """``job_label``, ``role_label``: of pods. ``min_members``, ``min_by_role``: annotations.

    ``mode`` start: the barrier is for the first start alone; always: so many must run or wait
    whenever a member starts. ``wait_seconds``: how long a pod with a node waits for the others.
    """

    job_label: str = Field("proreus.dev/job", min_length=1)
    role_label: str = Field("proreus.dev/role", min_length=1)
    min_members: str = Field("proreus.dev/min-members", min_length=1)
    min_by_role: str = Field("proreus.dev/min-members-by-role", min_length=1)
    mode: Literal["start", "always"] = "start"
    wait_seconds: Seconds = Field(60.0, gt=0, le=MAX_PERMIT_WAIT_SECONDS)
