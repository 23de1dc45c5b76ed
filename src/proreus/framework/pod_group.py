"""A PodGroup as plugins see it: its pods, its possible placements, and pods assigned in a dry run.

``PodGroupState`` is the cache's state of a group; the other values belong to one scheduling cycle
of a whole group. Unrelated to ``pod_label_groups``, which groups pods by labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from proreus.framework.pod_info import PodInfo

POD_GROUP_SCHEDULING_CYCLE = "proreus/pod-group-dry-run"
"""``CycleState`` key that is present while a pod is scheduled in a dry run of its whole group.

The value is the number of the group's pods that had a node before the dry run began.
"""


class PlacedPod(NamedTuple):
    """A pod (``pod``) and its node (``node_name``)."""

    pod: PodInfo
    node_name: str


class PodGroupState(Protocol):
    """The known pods of a group by UID, with and without a node."""

    @property
    def unscheduled(self) -> Mapping[str, PodInfo]:
        """Pods without a node."""
        ...

    @property
    def assumed(self) -> Mapping[str, PlacedPod]:
        """Pods assumed on a node; in a dry run also those that it has assigned so far."""
        ...

    @property
    def all_pods_count(self) -> int:
        """The number of known pods."""
        ...

    @property
    def scheduled_count(self) -> int:
        """The number of pods with a node, assumed ones included."""
        ...

    def scheduled(self) -> Sequence[PlacedPod]:
        """Return the pods that have a node, assumed ones included."""
        ...


class PodGroupStates(Protocol):
    """The state of every group that pods name."""

    def get(self, key: str) -> PodGroupState | None:
        """Return the state of a group by ``namespace/name``; None if none of its pods is known."""
        ...


@dataclass(frozen=True, slots=True)
class PodGroupInfo:
    """A group, ``namespace`` and ``name``: ``pods`` are to be placed now, in their order."""

    namespace: str
    name: str
    pods: tuple[PodInfo, ...]

    @property
    def key(self) -> str:
        """``namespace/name``"""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes on which a whole group may be scheduled: ``node_names``, None for all.

    ``name``: for logs.
    """

    name: str
    node_names: Collection[str] | None


@dataclass(frozen=True, slots=True)
class PodGroupAssignments:
    """The result of a dry run in one ``placement``: the ``pods`` that fit, with their nodes."""

    placement: Placement
    pods: tuple[PlacedPod, ...]
