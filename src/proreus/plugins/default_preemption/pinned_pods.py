"""The pods that can run on no other node, by their node affinity and tolerations.

For ``KnownFault.PINNED_VICTIM``. Whether there is room elsewhere is not asked: the replacement of a
pod that is not pinned can at least wait for it, or preempt.
"""

from __future__ import annotations

import numpy as np

from proreus.framework.interning import once_per_value
from proreus.framework.node_affinity import PodNodeAffinity, node_affinity
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.tolerations import toleration_index
from proreus.objects.taints import TolerationIndex


class PinnedPods:
    """Answers for pods on the nodes of a table, as they are during one preemption.

    ``compare_numbers``: gate TaintTolerationComparisonOperators.
    """

    def __init__(self, nodes: NodeTable, compare_numbers: bool) -> None:
        self._nodes = nodes
        self._compare_numbers = compare_numbers
        self._known: dict[tuple[PodNodeAffinity, TolerationIndex], bool] = {}

    def is_pinned(self, pod: PodInfo) -> bool:
        """Return whether at most one node is for pods like this one."""
        key = node_affinity(pod), toleration_index(pod)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._usable_nodes(*key) <= 1
        return known

    def _usable_nodes(self, affinity: PodNodeAffinity, tolerations: TolerationIndex) -> int:
        usable = affinity.matches_all(self._nodes)
        tainted = once_per_value(
            self._nodes.taint_set,
            self._nodes.taint_sets.values,
            lambda taints: (
                tolerations.first_untolerated(taints, compare_numbers=self._compare_numbers)
                is not None
            ),
        )
        return int(np.count_nonzero(usable if tainted is None else usable & ~tainted))
