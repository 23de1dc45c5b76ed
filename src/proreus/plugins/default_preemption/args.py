"""The arguments of DefaultPreemption."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import child, invalid
from proreus.config.fields import Int32, PluginArgs


class DefaultPreemptionArgs(PluginArgs):
    """How many candidate nodes a dry run has to find.

    ``min_candidate_nodes_percentage``: their share of all nodes, ``min_candidate_nodes_absolute``:
    their least number. A subclass may have fields of its own. ``go_type`` is the name in
    kube-scheduler's messages.
    """

    go_type = "v1.DefaultPreemptionArgs"

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check both ranges; at most one of the values may be zero."""
        percentage, absolute = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            value = self.min_candidate_nodes_percentage
            yield invalid(child(path, percentage), value, "not in valid range [0, 100]")
        if self.min_candidate_nodes_absolute < 0:
            value = self.min_candidate_nodes_absolute
            yield invalid(child(path, absolute), value, "not in valid range [0, inf)")
        if self.min_candidate_nodes_percentage == self.min_candidate_nodes_absolute == 0:
            for name, other in ((percentage, absolute), (absolute, percentage)):
                yield invalid(child(path, name), 0, f"cannot be zero at the same time as {other}")
