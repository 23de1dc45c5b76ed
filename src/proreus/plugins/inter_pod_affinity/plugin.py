"""The plugin: required terms in Filter, preferred ones in Score.

Counts are columns of the pod index, summed by topology domain: the cost depends on the number of
nodes and distinct terms, not on the number of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from proreus.base.feature_gates import FeatureGates
from proreus.config.field_errors import child, invalid
from proreus.config.fields import Boolean, Int32, PluginArgs
from proreus.framework.affinity_terms import NO_TERMS, affinity_terms
from proreus.framework.cycle_state import CycleState
from proreus.framework.domains import any_in_domain, sum_by_domain
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import (
    MAX_SCORE,
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.term_set import TermSet
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.plugins.inter_pod_affinity.counts import (
    AFFINITY_REJECTED,
    ANTI_AFFINITY_REJECTED,
    EXISTING_REJECTED,
    AffinityCounts,
)
from proreus.plugins.inter_pod_affinity.hints import AffinityHints
from proreus.plugins.inter_pod_affinity.namespaces import Namespaces

_SCORES = "InterPodAffinity/scores"


class InterPodAffinityArgs(PluginArgs):
    """The weight of existing pods' affinity terms in the score of an incoming pod."""

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


class InterPodAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Places pods by the labels of the pods in the same topology domain."""

    needs_points = {"filter": "preFilter", "score": "preScore"}

    # Filter reads the counts in the cycle state, which AddPod and RemovePod update.
    looks_at_pods = False
    Args = InterPodAffinityArgs

    def __init__(self, args: InterPodAffinityArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignore_preferred = args.ignore_preferred_terms_of_existing_pods
        self._hostname_fast_path = handle.feature_gates.enabled("InterPodAffinityHostnameFastPath")
        self._namespaces = Namespaces(handle)

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register events of pods, nodes and namespaces; see ``hints``."""
        return AffinityHints(self.handle, self._namespaces).events()

    # ---- filter --------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Count the pods that match; skip if none does and the pod requires nothing."""
        # A pod without terms still has to respect the anti-affinity of existing pods.
        terms = affinity_terms(pod)
        if terms is NO_TERMS and not nodes.pod_index.required_anti.counted:
            return _SKIP
        if terms.error:
            return Status.unresolvable(f"parsing pod: {terms.error}")
        counts = AffinityCounts.from_nodes(
            pod,
            self._namespaces.now,
            nodes,
            partial(state.check_budget, self.name, "PreFilter"),
            self._hostname_fast_path,
        )
        if counts.nothing_to_check:
            return _SKIP
        state.write(self.name, counts)
        return None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> bool:
        """Add a pod to the counts."""
        counts: AffinityCounts = state.read(self.name)
        return counts.count_pod(pod, added, node, 1, self.handle.nodes)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> bool:
        """Remove a pod from the counts."""
        counts: AffinityCounts = state.read(self.name)
        return counts.count_pod(pod, removed, node, -1, self.handle.nodes)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node: the pod's affinity, its anti-affinity, that of existing pods."""
        counts: AffinityCounts = state.read(self.name)
        labels = node.labels
        if counts.affinity:
            # Also for the first pod of a group: its node needs the topology keys.
            if not all(key in labels for key in counts.affinity):
                return AFFINITY_REJECTED
            enough = all(sums[labels[key]] > 0 for key, sums in counts.affinity.items())
            if not enough and not counts.first_of_its_kind:
                return AFFINITY_REJECTED
        if any(sums[labels.get(key)] > 0 for key, sums in counts.anti.items()):
            return ANTI_AFFINITY_REJECTED
        if any(sums[labels.get(key)] > 0 for key, sums in counts.existing.items()):
            return EXISTING_REJECTED
        return None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes."""
        counts: AffinityCounts = state.read(self.name)
        for rejection, rows in counts.rejections(nodes):
            verdicts.reject_with(rows, rejection)

    # ---- score ---------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Sum up weights by topology domain, over the pods of the whole cluster."""
        terms = affinity_terms(pod)
        if terms.error:
            return Status.error(f"failed to parse pod: {terms.error}")
        preferred = [own for own in (terms.preferred, terms.preferred_anti) if own.weighted]
        if not preferred and self._ignore_preferred:
            return _SKIP
        scores: dict[str, IntArray] = {}
        everything = self.handle.nodes
        for key, weights in self._contributions(preferred, pod, everything, state):
            sums = sum_by_domain(everything, key, weights)
            known = scores.get(key)
            scores[key] = sums if known is None else known + sums
        if not scores:
            return _SKIP
        state.write(_SCORES, scores)
        return None

    def _contributions(
        self, preferred: Sequence[TermSet], pod: PodInfo, nodes: NodeTable, state: CycleState
    ) -> Iterator[tuple[str, IntArray]]:
        """Yield topology keys with the weight that the pods on each node add, if any does.

        ``preferred``: the pod's preferred terms.
        """
        check = partial(state.check_budget, self.name, "PreScore")
        for ours in preferred:
            for (key, _), weights in nodes.count_selected(self._namespaces.now.within(ours), check):
                if any_in_domain(nodes, key, weights):
                    yield key, weights
        # Symmetry: terms of existing pods that match this one. Their required affinity counts as
        # preferred, with hardPodAffinityWeight.
        index = nodes.pod_index
        for existing, weight in ((index.required, self._hard_weight), (index.preferred, 1)):
            if not weight or not existing.counted:
                continue
            namespace_labels = self._namespaces.now.of(pod)
            matching = existing.matching(
                pod.namespace, pod.pod.metadata.labels, namespace_labels, nodes.has_label
            )
            for (key, _), theirs in matching.items():
                weights = nodes.count_terms(theirs)
                if any_in_domain(nodes, key, weights):
                    yield key, weights * weight

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        """Score all nodes."""
        scores: dict[str, IntArray] = state.read(_SCORES)
        parts = [sums[nodes.label(key)] for key, sums in scores.items()]
        return sum(parts[1:], parts[0])

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Scale the scores to 0 to 100."""
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return np.zeros_like(scores)
        # The quotient first, as in kube-scheduler: another order rounds some scores differently.
        fractions = (scores - lowest) / float(highest - lowest)
        return (MAX_SCORE * fractions).astype(np.int64)


_SKIP = Status.skip()
