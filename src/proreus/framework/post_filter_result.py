"""Results of PostFilter: a status, a nomination to set or clear, and the victims on a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status


@dataclass(frozen=True, slots=True)
class NominatingInfo:
    """Sets the pod's nominated node to ``node_name``; the empty name clears it.

    No info at all (None) leaves ``status.nominatedNodeName`` as it is.
    """

    node_name: str


CLEAR_NOMINATION = NominatingInfo("")


class Victims(NamedTuple):
    """The ``pods`` to be evicted from one node, the most important first.

    ``pdb_violations``: how many of them violate a PodDisruptionBudget.
    """

    pods: tuple[PodInfo, ...]
    pdb_violations: int


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """``status`` None is success; ``nominating`` None leaves the nomination alone.

    The reasons of a ``Status.success`` are told with the failed attempt. ``victims``: the pods that
    are evicted for the pod, to be told to whoever asks why it waits.
    """

    status: Status | None = None
    nominating: NominatingInfo | None = None
    victims: Victims | None = None
