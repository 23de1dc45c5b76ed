"""The result of PostFilter: a status, and a nomination to set, to clear or to keep."""

from __future__ import annotations

from dataclasses import dataclass

from proreus.framework.status import Status


@dataclass(frozen=True, slots=True)
class NominatingInfo:
    """Sets the pod's nominated node; the empty name clears it.

    No info at all (None) leaves ``status.nominatedNodeName`` as it is.
    """

    node_name: str


CLEAR_NOMINATION = NominatingInfo("")


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """``status`` None is success; ``nominating`` None leaves the nomination alone."""

    status: Status | None = None
    nominating: NominatingInfo | None = None
