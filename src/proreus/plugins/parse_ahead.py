"""What is parsed of a large object before anybody else sees it.

A pod of a megabyte or two takes tens of milliseconds to parse: thousands of terms, containers or
resources, each an object. On the event loop all other pods would wait for that, so a watch has
large pods parsed in a thread first. The interpreter changes between that and the loop every few
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from proreus.base.feature_gates import FeatureGates
from proreus.framework.affinity_terms import parse_terms_ahead
from proreus.framework.node_affinity import parse_node_affinity_ahead
from proreus.framework.pod_info import compute_requests_ahead
from proreus.framework.tolerations import index_tolerations_ahead
from proreus.objects.kinds import PODS
from proreus.objects.pod import Pod
from proreus.objects.storage import CSI_STORAGE_CAPACITIES
from proreus.plugins.pod_topology_spread.constraints import parse_constraints_ahead
from proreus.plugins.volume_binding.storage_capacity import parse_topology_ahead


def parsers(gates: FeatureGates) -> Mapping[str, Callable[[Any], Callable[[], object]]]:
    """Return, by ``Resource.id``, what parses large objects ahead."""
    return {PODS.id: PodParser(gates), CSI_STORAGE_CAPACITIES.id: parse_topology_ahead}


class PodParser:
    """Parses pods ahead, as the feature gates say."""

    def __init__(self, gates: FeatureGates) -> None:
        match_label_keys = gates.enabled("MatchLabelKeysInPodTopologySpread")
        self._steps: tuple[Callable[[Pod], Callable[[], object] | None], ...] = (
            compute_requests_ahead,
            parse_terms_ahead,
            parse_node_affinity_ahead,
            index_tolerations_ahead,
            partial(parse_constraints_ahead, match_label_keys=match_label_keys),
        )

    def __call__(self, pod: Pod) -> Callable[[], None]:
        """Parse a pod, in any thread.

        The function that is returned puts the results into the caches in which scheduling looks for
        them; call it on the event loop's thread.
        """
        parsed = [found for step in self._steps if (found := step(pod)) is not None]

        def keep() -> None:
            for keep_one in parsed:
                keep_one()

        return keep
