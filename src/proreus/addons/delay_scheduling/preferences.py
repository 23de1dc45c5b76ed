"""Which nodes a pod prefers at each level.

Annotations come first: ``proreus.dev/prefer-nodes: a,b`` and ``proreus.dev/prefer-<level>: value``,
with several values separated by commas. A pod without them prefers what the default source finds.
The place of a preferred node is preferred as well: its zone at the level of zones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from proreus.addons.delay_scheduling.args import NODE_NAME, DelaySchedulingArgs, LocalityLevel
from proreus.addons.delay_scheduling.sources import NodeSource
from proreus.framework import BoolArray, NodeTable, PodInfo

PREFER_NODES = "proreus.dev/prefer-nodes"
PREFER = "proreus.dev/prefer-"

Preference = tuple[BoolArray, ...]
"""The preferred nodes at each level, by row of the table; none set: no preference there."""


class Preferences:
    """Finds the preferred nodes of pods."""

    def __init__(self, args: DelaySchedulingArgs, source: NodeSource | None) -> None:
        """``source``: of pods without annotations; None: they have no preference."""
        self._levels = args.levels
        self._annotations = (PREFER_NODES, *(PREFER + level.name for level in args.levels))
        self._source = source

    def of(self, pod: PodInfo, nodes: NodeTable) -> Preference | None:
        """Return the preferred nodes at each level; None for a pod without preference."""
        annotations = pod.pod.metadata.annotations
        if any(key in annotations for key in self._annotations):
            preferred = np.zeros(len(nodes), dtype=np.bool_)
            preferred[nodes.rows_of(_values(annotations, PREFER_NODES))] = True
        elif self._source is None:
            return None
        else:
            preferred = self._source.preferred(pod, nodes)
        found = []
        for level in self._levels:
            values = _values(annotations, PREFER + level.name)
            # Each level is a part of the next one: its preferred nodes are preferred there too.
            preferred = preferred | _in_places(nodes, level, preferred, values)
            found.append(preferred)
        return tuple(found) if preferred.any() else None


def _in_places(
    nodes: NodeTable, level: LocalityLevel, preferred: BoolArray, values: Sequence[str]
) -> BoolArray:
    """Return the nodes with one of the values, or in a place that has a preferred node."""
    if level.key == NODE_NAME:
        named = np.zeros(len(nodes), dtype=np.bool_)
        named[nodes.rows_of(values)] = True
        return named
    codes, known = nodes.label(level.key), nodes.label_values(level.key).values
    # The last entry stands for nodes without the label, whose code is -1: they are in no place.
    wanted = np.array([*(value in values for value in known), False], dtype=np.bool_)
    wanted[codes[preferred]] = True
    wanted[-1] = False
    in_places: BoolArray = wanted[codes]
    return in_places


def _values(annotations: Mapping[str, str], key: str) -> list[str]:
    return [value for part in annotations.get(key, "").split(",") if (value := part.strip())]
