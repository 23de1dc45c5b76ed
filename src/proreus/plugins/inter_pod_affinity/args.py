"""The arguments of InterPodAffinity."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import child, invalid
from proreus.config.fields import Boolean, Int32, PluginArgs


class InterPodAffinityArgs(PluginArgs):
    """How the affinity terms of existing pods count in the score of an incoming pod."""

    go_type = "v1.InterPodAffinityArgs"

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: Boolean = False

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the range of the weight."""
        if not 0 <= self.hard_pod_affinity_weight <= 100:
            yield invalid(
                child(path, "hardPodAffinityWeight"),
                self.hard_pod_affinity_weight,
                "not in valid range [0, 100]",
            )
