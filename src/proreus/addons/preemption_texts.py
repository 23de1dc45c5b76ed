"""The texts of preemption in scheduler-plugins, without the prefix of kube-scheduler."""

from __future__ import annotations

from msgspec.structs import replace

from proreus.framework import PostFilterResult, Status

_PREFIX = "preemption: "


def without_prefix(result: PostFilterResult) -> PostFilterResult:
    """Return a result with reasons without the prefix."""
    status = result.status
    if status is None:
        return result
    reasons = tuple(reason.removeprefix(_PREFIX) for reason in status.reasons)
    return replace(result, status=Status(status.code, reasons))
