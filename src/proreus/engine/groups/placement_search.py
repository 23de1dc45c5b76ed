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


def known_to_lack_nothing(placements: Sequence[Placement]) -> list[int]:
    """Return the places of the placements to try."""
    return [place for place, one in enumerate(placements) if not one.lacking]


def every_placement(
    placements: Sequence[Placement],
    pods: Sequence[QueuedPodInfo],
    profile: Profile,
    nodes: NodeTable,
    rng: random.Random,
) -> PlacementSearch:
    """Search all placements, or up to the first that fits if their order is that of preference."""
    wanted = 1 if isinstance(placements, OrderedPlacements) else len(placements)
    return PlacementSearch(known_to_lack_nothing(placements), wanted)


def enough_placements(
    placements: Sequence[Placement],
    pods: Sequence[QueuedPodInfo],
    profile: Profile,
    nodes: NodeTable,
    rng: random.Random,
) -> PlacementSearch:
    """Search the placement that ``pods`` are nominated to, then a share of all of them.

    ``pods``: of a root PodGroup; none for a group of another tree, which may have its minimum
    without a pod more, so that the first placement would be as good as any.
    """
    places = known_to_lack_nothing(placements)
    nominated = _nominated(placements, pods, nodes)
    if isinstance(placements, OrderedPlacements):
        wanted = 1
    else:
        wanted = _wanted([placements[place] for place in places], profile, nodes)
        if wanted < len(places):
            rng.shuffle(places)
    if nominated in places:
        places.sort(key=lambda place: place != nominated)
    return PlacementSearch(places, wanted, nominated)


SearchPlacements = Callable[
    [Sequence[Placement], Sequence[QueuedPodInfo], Profile, NodeTable, random.Random],
    PlacementSearch,
]


def search_of(gates: FeatureGates) -> SearchPlacements:
    """Return how the emulated version searches placements."""
    return enough_placements if gates.includes(Change.PLACEMENT_SEARCH) else every_placement


def _nominated(
    placements: Sequence[Placement], pods: Sequence[QueuedPodInfo], nodes: NodeTable
) -> int | None:
    """Return the place of the only placement with nodes that pods are nominated to."""
    names = {queued.pod.status.nominated_node_name for queued in pods} & nodes.rows.keys()
    found = [
        place
        for place, one in enumerate(placements)
        if names and (one.node_names is None or not names.isdisjoint(one.node_names))
    ]
    return found[0] if len(found) == 1 else None


def _wanted(placements: Sequence[Placement], profile: Profile, nodes: NodeTable) -> int:
    """Return how many feasible placements are found before the best one is chosen."""
    # Without scores the first one is as good as any.
    if not profile.placement_score:
        return 1
    percentage = profile.percentage_of_placements_to_score
    if not percentage:
        sizes = (
            len(nodes.rows) if one.node_names is None else len(one.node_names) for one in placements
        )
        percentage = max(_LEAST_PERCENTAGE, 100 - sum(sizes) * 9 // 500)
    return max(1, len(placements) * percentage // 100)
