"""All extension points, named by configurations or not."""

from __future__ import annotations

from proreus.framework.plugin import (
    BindPlugin,
    FeasibleFilterPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.pod_group_plugin import (
    PlacementFeasiblePlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroupPostFilterPlugin,
)

POINTS: dict[str, type[Plugin]] = {
    "preEnqueue": PreEnqueuePlugin,
    "queueSort": QueueSortPlugin,
    "preFilter": PreFilterPlugin,
    "filter": FilterPlugin,
    "postFilter": PostFilterPlugin,
    "preScore": PreScorePlugin,
    "score": ScorePlugin,
    "reserve": ReservePlugin,
    "permit": PermitPlugin,
    "preBind": PreBindPlugin,
    "bind": BindPlugin,
    "postBind": PostBindPlugin,
    "placementGenerate": PlacementGeneratePlugin,
    "placementScore": PlacementScorePlugin,
    "placementFeasible": PlacementFeasiblePlugin,
    "podGroupPostFilter": PodGroupPostFilterPlugin,
}
"""Extension points by their names in KubeSchedulerConfiguration."""

UNNAMED_POINTS: tuple[type[Plugin], ...] = (FeasibleFilterPlugin,)
"""Extension points that no configuration names: each enabled plugin that has them is called."""


def points_of(plugin: type[Plugin]) -> frozenset[str]:
    """Return the names of the extension points that a plugin takes part in."""
    return frozenset(point for point, base in POINTS.items() if issubclass(plugin, base))
