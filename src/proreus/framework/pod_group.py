"""A PodGroup as plugins see it: its pods, where they might go, and where they were put in a trial.

``PodGroupState`` is the cache's book of a group; the other values belong to one scheduling cycle of
a whole group. Not to be taken for ``pod_groups``, which counts pods that selectors cannot tell
apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from proreus.framework.pod_info import PodInfo

POD_GROUP_SCHEDULING_CYCLE = "proreus/pod-group-trial"
"""Key of a ``CycleState`` note that is there while a pod is only tried, with its whole group.

It says how many pods of the group had a node before the trial began.
"""


class PlacedPod(NamedTuple):
    """A pod and its node."""

    pod: PodInfo
    node_name: str


class PodGroupState(Protocol):
    """Which pods of a group are known, by UID, and how far they have come."""

    @property
    def unscheduled(self) -> Mapping[str, PodInfo]:
        """Pods without a node."""
        ...

    @property
    def assumed(self) -> Mapping[str, PlacedPod]:
        """Pods that were given a node here; in a trial also those that were tried so far."""
        ...

    @property
    def all_pods_count(self) -> int:
        """How many pods are known."""
        ...

    @property
    def scheduled_count(self) -> int:
        """How many pods have a node, assumed ones included."""
        ...

    def scheduled(self) -> Sequence[PlacedPod]:
        """Return the pods that have a node, assumed ones included."""
        ...


class PodGroupStates(Protocol):
    """The state of every group that pods name."""

    def get(self, key: str) -> PodGroupState | None:
        """Return what is known of a group, by ``namespace/name``; None when no pod of it is."""
        ...


@dataclass(frozen=True, slots=True)
class PodGroupInfo:
    """A group that is being scheduled: the pods to be placed now, in their order."""

    namespace: str
    name: str
    pods: tuple[PodInfo, ...]

    @property
    def key(self) -> str:
        """``namespace/name``"""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Placement:
    """A set of nodes, by name, among which a whole group may go; None = all nodes."""

    name: str
    node_names: Collection[str] | None


@dataclass(frozen=True, slots=True)
class PodGroupAssignments:
    """What came of a trial with a placement: the pods that fit, and where."""

    placement: Placement
    pods: tuple[PlacedPod, ...]
