"""The placements of a group that are tried: in which order, and how many have to fit.

Example: 40 racks of 50 nodes, percentageOfPlacementsToScore 0. The share of 2,000 nodes is
100 - 2,000 * 9 / 500 = 64 %, so the search ends with the 25th rack that has room for the group, and
the racks are in a random order, so that the first ones are not filled before the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import Change
from proreus.engine.runtime.profile import Profile
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_group import OrderedPlacements, Placement
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.status import Status

_LEAST_PERCENTAGE = 5

NOMINATED_WITHOUT_POD = Status.unschedulable(
    "nominated placement is feasible but no pending pod was scheduled"
)
"""The status of a group that is complete, where none of its pods has room in that placement."""


class PlacementSearch(Struct, frozen=True):
    """``places``: of the placements, as they are tried until ``wanted`` of them fit.

    ``nominated``: the place of the placement that the pods are nominated to. It is the first, and
    the only one if it has room for a pod more.
    """

    places: Iterable[int]
    wanted: int
    nominated: int | None = None

    def is_over(self, found: int, place: int) -> bool:
        """Return whether no further placement is tried; ``found``: how many fit, ``place``: of the
        last one tried."""
        return found >= self.wanted or (found > 0 and place == self.nominated)


class GroupPlacements(Struct, frozen=True):
    """The placements of a group, and what decides which of them are searched.

    ``pods``: those of a root PodGroup; none for a group of another tree, which may have its minimum
    without a pod more, so that the first placement would be as good as any.
    """

    placements: Sequence[Placement]
    pods: Sequence[QueuedPodInfo]
    profile: Profile
    nodes: NodeTable
    rng: random.Random

    @property
    def are_ordered(self) -> bool:
        """Whether their order is that of preference, so that the first that fits is the best."""
        return isinstance(self.placements, OrderedPlacements)

    def possible(self) -> list[int]:
        """Return the places of the placements that are not known to lack something."""
        return [place for place, one in enumerate(self.placements) if not one.lacking]

    def nominated(self) -> int | None:
        """Return the place of the only placement with nodes that pods are nominated to."""
        names = {one.pod.status.nominated_node_name for one in self.pods} & self.nodes.rows.keys()
        found = [
            place
            for place, one in enumerate(self.placements)
            if names and (one.node_names is None or not names.isdisjoint(one.node_names))
        ]
        return found[0] if len(found) == 1 else None

    def share_of(self, places: Sequence[int]) -> int:
        """Return how many of these placements are to fit before the best one is chosen."""
        # Without scores the first one is as good as any.
        if not self.profile.placement_score:
            return 1
        percentage = self.profile.percentage_of_placements_to_score
        if not percentage:
            nodes = sum(self._size_of(self.placements[place]) for place in places)
            percentage = max(_LEAST_PERCENTAGE, 100 - nodes * 9 // 500)
        return max(1, len(places) * percentage // 100)

    def _size_of(self, placement: Placement) -> int:
        names = placement.node_names
        return len(self.nodes.rows if names is None else names)


def every_placement(group: GroupPlacements) -> PlacementSearch:
    """Search all placements, or up to the first that fits if they are ordered."""
    return PlacementSearch(group.possible(), 1 if group.are_ordered else len(group.placements))


def enough_placements(group: GroupPlacements) -> PlacementSearch:
    """Search the placement that pods are nominated to, then a share of all of them."""
    places, nominated = group.possible(), group.nominated()
    wanted = 1
    if not group.are_ordered:
        wanted = group.share_of(places)
        if wanted < len(places):
            group.rng.shuffle(places)
    if nominated in places:
        places.sort(key=lambda place: place != nominated)
    return PlacementSearch(places, wanted, nominated)


SearchPlacements = Callable[[GroupPlacements], PlacementSearch]


def search_of(gates: FeatureGates) -> SearchPlacements:
    """Return how the emulated version searches placements."""
    return enough_placements if gates.includes(Change.PLACEMENT_SEARCH) else every_placement
