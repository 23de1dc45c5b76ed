"""The texts of preemption in scheduler-plugins, which lack the prefix of kube-scheduler's."""

from __future__ import annotations

from msgspec.structs import replace

from proreus.framework import PostFilterResult, Status

_PREFIX = "preemption: "


def without_prefix(result: PostFilterResult) -> PostFilterResult:
    """Return a result whose reasons do not say that they are about preemption."""
    status = result.status
    if status is None:
        return result
    reasons = tuple(reason.removeprefix(_PREFIX) for reason in status.reasons)
    return replace(result, status=Status(status.code, reasons))
