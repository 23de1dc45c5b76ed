"""The plugin: numbers or times of nodes, from a label or an annotation, stretched to 1..100.

Worked example, strategy Lowest: nodes whose annotation says 0.5, 1 and 2.5 score 100, 75 and 1; one
without it scores 0.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from math import floor, isfinite, nan
from typing import Literal

import numpy as np
from pydantic import Field

from proreus.addons.node_metadata.timestamps import python_format, seconds_of
from proreus.framework import (
    MAX_SCORE,
    CycleState,
    FeatureGates,
    IntArray,
    NodeInfo,
    PluginArgs,
    PodInfo,
    ScorePlugin,
    field_errors,
)

_STRATEGIES = {"Number": ("Highest", "Lowest"), "Timestamp": ("Newest", "Oldest")}
_UNKNOWN = np.iinfo(np.int64).min
"""The raw score of a node without a valid value."""
_MOST = 2**55
_RFC3339 = (
    "",
    "RFC3339",
    "RFC3339Nano",
    "2006-01-02T15:04:05Z07:00",
    "2006-01-02T15:04:05.999999999Z07:00",
)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""Numbers that Go and Python read alike: no spaces, underscores or non-ASCII digits."""


class NodeMetadataArgs(PluginArgs):
    """The label or annotation (``metadata_key``) and how its value becomes a score.

    ``default_value``: for nodes without it. ``timestamp_format``: a layout of Go or a format of
    Python; RFC 3339 by default.
    """

    metadata_key: str = Field(min_length=1)
    metadata_source: Literal["Label", "Annotation"] = "Label"
    metadata_type: Literal["Number", "Timestamp"] = "Number"
    scoring_strategy: Literal["Highest", "Lowest", "Newest", "Oldest"] = "Highest"
    timestamp_format: str = ""
    default_value: str = ""

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that the strategy fits the type, and that the format has a part of a time."""
        known = _STRATEGIES[self.metadata_type]
        if self.scoring_strategy not in known:
            where = field_errors.child(path, "scoringStrategy")
            text = f"must be {' or '.join(known)} for {self.metadata_type}"
            yield field_errors.invalid(where, self.scoring_strategy, text)
        if self._layout and "%" not in python_format(self._layout):
            where = field_errors.child(path, "timestampFormat")
            yield field_errors.invalid(where, self.timestamp_format, "has no part of a time")

    @property
    def _layout(self) -> str:
        return "" if self.timestamp_format in _RFC3339 else self.timestamp_format

    def raw_score(self, text: str | None) -> int:
        """Return a value in thousandths, or ``_UNKNOWN`` if it is not valid."""
        text = self.default_value if text is None else text
        try:
            if self.metadata_type == "Number":
                number = float(text) if _NUMBER.fullmatch(text) else nan
            else:
                number = seconds_of(text, self._layout)
        except (ValueError, OverflowError):
            return _UNKNOWN
        if not isfinite(number):
            return _UNKNOWN
        # Clip first: a thousand times the number may be infinite.
        thousandths = floor(min(max(number, -_MOST), _MOST) * 1000)
        thousandths = min(max(thousandths, -_MOST), _MOST)
        return -thousandths if self.scoring_strategy in ("Lowest", "Oldest") else thousandths


class NodeMetadata(ScorePlugin):
    """Prefers nodes with the highest, lowest, newest or oldest value."""

    Args = NodeMetadataArgs
    args: NodeMetadataArgs
    row_local = True
    looks_at_pods = False

    def sign(self, pod: PodInfo) -> Hashable:
        """Return one signature for all pods: none of their fields is read."""
        return ()

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score one node by its value."""
        if self.args.metadata_source == "Label":
            return self.args.raw_score(node.labels.get(self.args.metadata_key))
        annotations = {} if node.node is None else node.node.metadata.annotations
        return self.args.raw_score(annotations.get(self.args.metadata_key))

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Stretch valid values to 1..100, 100 if they are equal; 0 for the others."""
        valid = scores != _UNKNOWN
        found = np.zeros_like(scores)
        if not valid.any():
            return found
        least, most = int(scores[valid].min()), int(scores[valid].max())
        if least == most:
            found[valid] = MAX_SCORE
        else:
            found[valid] = 1 + (scores[valid] - least) * (MAX_SCORE - 1) // (most - least)
        return found
