"""The plugin: hard constraints (DoNotSchedule) in Filter, soft ones (ScheduleAnyway) in Score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from proreus.base.known_faults import KnownFault
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.interning import ABSENT
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.objects.pod import Pod
from proreus.objects.selectors import SelectorError
from proreus.plugins.pod_topology_spread import scoring
from proreus.plugins.pod_topology_spread.args import PodTopologySpreadArgs
from proreus.plugins.pod_topology_spread.constraints import ConstraintResolver, SpreadConstraint
from proreus.plugins.pod_topology_spread.counts import SpreadCounts
from proreus.plugins.pod_topology_spread.hints import SpreadHints
from proreus.plugins.pod_topology_spread.scoring import SpreadScores
from proreus.plugins.pod_topology_spread.topology_domains import TopologyDomainCache

REASON = "node(s) didn't match pod topology spread constraints"
REASON_LABEL = f"{REASON} (missing required label)"

_NAME = "PodTopologySpread"
_SCORES = "PodTopologySpread/scores"
_TOO_MANY = Status.unschedulable(REASON).with_plugin(_NAME)
_NO_LABEL = Status.unresolvable(REASON_LABEL).with_plugin(_NAME)
_SKIP = Status.skip()


class PodTopologySpread(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Spreads pods over topology domains by their constraints, or by the profile's defaults."""

    needs_points = {"filter": "preFilter", "score": "preScore"}

    # Filter reads the counts in the cycle state, which AddPod and RemovePod update.
    looks_at_pods = False
    Args = PodTopologySpreadArgs

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        gates = handle.feature_gates
        self._constraints = ConstraintResolver(args, handle)
        self._domain_cache = TopologyDomainCache(
            handle.nodes,
            gates.enabled("TaintTolerationComparisonOperators"),
            counts_tainted=gates.corrects(KnownFault.TAINTED_ZONE_MIN_DOMAINS),
        )
        self._hints = SpreadHints(
            self._hard_constraints, self._constraints.has_hard_defaults, handle.feature_gates
        )

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register pod and node events; see ``hints``."""
        return self._hints.events()

    def _hard_constraints(self, pod: Pod) -> Sequence[SpreadConstraint]:
        resolved = self._constraints.hard_of(pod)
        if resolved.hard_error:
            raise SelectorError(resolved.hard_error)
        return resolved.hard

    # ---- filter --------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Count pods by domain; skip pods without hard constraints."""
        resolved = self._constraints.hard_of(pod.pod)
        if resolved.hard_error:
            return Status.error(resolved.hard_error)
        if not resolved.hard:
            return _SKIP
        check = partial(state.check_budget, self.name, "PreFilter")
        counts = SpreadCounts.from_nodes(resolved.hard, pod, nodes, self._domain_cache, check)
        state.write(self.name, counts)
        return None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> bool:
        """Add a pod to the counts."""
        counts: SpreadCounts = state.read(self.name)
        return counts.count_pod(pod, added, node, 1, self._domain_cache)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> bool:
        """Remove a pod from the counts."""
        counts: SpreadCounts = state.read(self.name)
        return counts.count_pod(pod, removed, node, -1, self._domain_cache)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node; the first constraint that it breaks decides."""
        counts: SpreadCounts = state.read(self.name)
        labels = node.labels
        for index, constraint in enumerate(counts.constraints):
            # Unresolvable, unlike the skew: no eviction gives a node a label.
            value = labels.get(constraint.topology_key)
            if value is None:
                return _NO_LABEL
            if counts.sums[index][value] > counts.skew_limit(index):
                return _TOO_MANY
        return None

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes; the skew is computed once a domain."""
        counts: SpreadCounts = state.read(self.name)
        for index, constraint in enumerate(counts.constraints):
            codes = nodes.label(constraint.topology_key)
            lacking = codes == ABSENT
            verdicts.reject_with(lacking, _NO_LABEL)
            if lacking.all():
                return  # the first reason of each node counts
            full = counts.sums[index].by_code > counts.skew_limit(index)
            if full.any():
                verdicts.reject_with(full[codes], _TOO_MANY)

    # ---- score ---------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Count pods by domain; skip pods without soft constraints."""
        resolved = self._constraints.of(pod.pod)
        if resolved.soft_error:
            return Status.error(f"calculating preScoreState: {resolved.soft_error}")
        if not resolved.soft:
            return _SKIP
        # The system defaults must not exclude nodes without a zone: such clusters are common.
        all_keys = resolved.own or not self._constraints.system_defaulted
        scores = SpreadScores.from_nodes(
            resolved.soft, all_keys, pod, nodes, self.handle.nodes, self._domain_cache
        )
        state.write(_SCORES, scores)
        return None

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        """Score all nodes."""
        scores: SpreadScores = state.read(_SCORES)
        return scores.of(nodes)

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Give the emptiest domains the highest scores."""
        return scoring.normalize(scores)
