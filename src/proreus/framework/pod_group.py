"""A PodGroup as plugins see it: its pods, its possible placements, and pods assigned in a dry run.

``PodGroupState`` is the cache's state of a group; the other values belong to one scheduling cycle
of a whole group. Unrelated to ``pod_label_groups``, which groups pods by labels.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import NominatingInfo, Victims
from proreus.framework.status import Status, checked
from proreus.objects.scheduling import CompositePodGroup, EntityKey, PodGroup

POD_GROUP_SCHEDULING_CYCLE = "proreus/pod-group-dry-run"
"""``CycleState`` key of a ``PodGroupSchedulingCycle``, there in a dry run of the pod's group."""


FILTER_VERDICTS = "proreus/filter-verdicts"
"""``CycleState`` key of the ``Verdicts`` of a pod that did not fit in a dry run of its group."""


class PodGroupSchedulingCycle(Struct, frozen=True):
    """The scheduling cycle of a whole group, which the cycles of its pods refer to.

    ``scheduled_before``: how many pods of the group had a node before it began. ``state``: data of
    plugins that all these pods share.
    """

    scheduled_before: int = 0
    state: CycleState = msgspec.field(default_factory=CycleState)


class PlacedPod(NamedTuple):
    """A pod (``pod``) and its node (``node_name``)."""

    pod: PodInfo
    node_name: str


class PodGroupState(Protocol):
    """The known pods of a group by UID, with and without a node."""

    @property
    def generation(self) -> int:
        """A number that grows with every change of the pods that have a node."""
        ...

    @property
    def unscheduled(self) -> Mapping[str, PodInfo]:
        """Pods without a node."""
        ...

    @property
    def assumed(self) -> Mapping[str, PlacedPod]:
        """Pods assumed on a node; in a dry run also the pods that it has assigned so far."""
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

    def all(self) -> Iterable[PodGroupState]:
        """Return the state of every group."""
        ...

    @property
    def position(self) -> int:
        """The number of changes so far: pods that came, went, or got or lost a node."""
        ...

    def changed_since(self, position: int) -> Sequence[str] | None:
        """Return the ``namespace/name`` of groups whose pods changed since, each once.

        None if that is forgotten, and any group may have changed.
        """
        ...


class PodGroupInfo(Struct, frozen=True):
    """A group, ``namespace`` and ``name``: ``pods`` are to be placed now, in their order.

    ``group``: the API object. A CompositePodGroup has no pods but ``children``, the oldest first.
    """

    namespace: str
    name: str
    pods: tuple[PodInfo, ...]
    group: PodGroup | CompositePodGroup | None = None
    children: tuple[PodGroupInfo, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``"""
        return f"{self.namespace}/{self.name}"

    @property
    def entity_key(self) -> EntityKey:
        """The key of the API object, which has to be known."""
        assert self.group is not None
        return self.group.key

    @property
    def is_composite(self) -> bool:
        """Whether it is a CompositePodGroup."""
        return isinstance(self.group, CompositePodGroup)

    @property
    def unscheduled_pods(self) -> tuple[PodInfo, ...]:
        """The pods that are to be placed now, those of all groups below included."""
        return self.pods + tuple(pod for child in self.children for pod in child.unscheduled_pods)

    @property
    def subtree(self) -> tuple[PodGroupInfo, ...]:
        """This group and all groups below it, each before its children."""
        return (self, *(group for child in self.children for group in child.subtree))

    @property
    def leaves(self) -> tuple[PodGroupInfo, ...]:
        """The PodGroups at or below this group."""
        if not self.is_composite:
            return (self,)
        return tuple(leaf for child in self.children for leaf in child.leaves)


class Placement(Struct, frozen=True):
    """Nodes on which a whole group may be scheduled: ``node_names``, None for all.

    ``name``: for logs. ``lacking``: the known lack of these nodes; with "" the group is tried.
    """

    name: str
    node_names: Collection[str] | None
    lacking: str = ""


_MOST_REASONS = 5


def reasons_of_placements(placements: Iterable[Placement]) -> list[str]:
    """Return the reasons against placements, each once, the most frequent first.

    Example: ``rack=a and 3 others: Insufficient cpu``.
    """
    names: dict[str, list[str]] = {}
    for placement in placements:
        names.setdefault(placement.lacking, []).append(placement.name)
    most = sorted(names.items(), key=lambda one: -len(one[1]))
    texts = []
    for reason, (first, *others) in most[:_MOST_REASONS]:
        more = f" and {len(others)} other{'s' * (len(others) > 1)}" if others else ""
        texts.append(f"{first}{more}: {reason}")
    left = sum(len(some) for _, some in most[_MOST_REASONS:])
    return [*texts, f"{left} others: other reasons"] if left else texts


class PodGroupDescription(Struct, frozen=True):
    """A group as its plugin knows it, for explanations.

    ``name``: ``namespace/name``. ``exists``: whether the object is there that says what the group
    needs. ``min_count``: how many of its pods have to be scheduled together. ``pods``: all that are
    known, by ``namespace/name``. ``placed``: how many of them have a node.
    """

    name: str
    exists: bool
    min_count: int = 0
    pods: tuple[str, ...] = ()
    placed: int = 0


class OrderedPlacements(tuple[Placement, ...]):
    """Placements in the order of preference: the first in which the group fits is taken.

    The others are not tried then, and none is scored. Those that are known to lack something are
    not tried at all.
    """

    __slots__ = ()


class PlacementProgress(NamedTuple):
    """How far the dry run of a group is: pods, or child groups of a CompositePodGroup.

    ``remaining``: those that are still to be tried. ``scheduled``: those that fit, or have a node.
    ``unschedulable``: those that were tried and do not fit.
    """

    remaining: int
    scheduled: int = 0
    unschedulable: int = 0

    def after(self, *, fits: bool) -> PlacementProgress:
        """Return the progress once one more was tried."""
        return PlacementProgress(
            self.remaining - 1, self.scheduled + fits, self.unschedulable + (not fits)
        )


class ProposedAssignment(NamedTuple):
    """A pod of a group that fits: ``pod``, ``node_name``, and ``state``, that of its dry run."""

    pod: PodInfo
    node_name: str
    state: CycleState


class PodGroupAssignments(Struct, frozen=True):
    """The result of a dry run in one ``placement``: the ``pods`` that fit, with their nodes."""

    placement: Placement
    pods: tuple[PlacedPod, ...]


SchedulePodGroup = Callable[[], Awaitable[Sequence[ProposedAssignment] | Status]]
"""Makes a dry run of a group on the nodes as they are now; returns its assignments, or why it does
not fit."""


class PodGroupPostFilterResult(Struct, frozen=True):
    """The result of a PodGroupPostFilter plugin.

    ``status``: Success, with or without a reason, if the group may fit once victims are gone; then
    ``nominating`` has new nominations by ``namespace/name`` of the pods, and ``victims`` the pods
    that are evicted, where they are known.
    """

    status: Status
    nominating: Mapping[str, NominatingInfo] = msgspec.field(default_factory=dict)
    victims: Victims | None = None

    def __post_init__(self) -> None:
        """Raise ``TypeError`` for fields of the wrong type."""
        # As in ``PostFilterResult``.
        if not isinstance(self.status, Status):
            raise TypeError(f"status must be a Status, not {self.status!r}")
        force_setattr(self, "status", checked(self.status))
        if not isinstance(self.nominating, Mapping):
            raise TypeError(f"nominating must be a mapping, not {self.nominating!r}")
        for info in self.nominating.values():
            if not isinstance(info, NominatingInfo):
                raise TypeError(f"nominating must have NominatingInfos, not {info!r}")
