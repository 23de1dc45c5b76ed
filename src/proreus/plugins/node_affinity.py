"""NodeAffinity: match nodes with nodeSelector, node affinity and the profile's ``addedAffinity``.

Equal affinities of several pods are parsed once (``framework.node_affinity``). A term that does not
parse matches no node; in ``addedAffinity`` it is a configuration error.

Worked example: preferred terms ``disk=ssd`` (weight 80) and ``zone=a`` (weight 20): a node with
both labels has the raw score 100, one with ``disk=ssd`` 80, one with neither 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from proreus.base.errors import ConfigError
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ADD, NODE, UPDATE_NODE_LABEL, ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_affinity import (
    UNRESTRICTED,
    PodNodeAffinity,
    WeightedTerm,
    matches_selector,
    node_affinity,
    parse_node_affinity,
    weigh_terms,
)
from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.scores import default_normalize
from proreus.framework.status import Status
from proreus.framework.verdicts import IntArray, Verdicts
from proreus.objects.node import Node
from proreus.objects.pod import NodeAffinity as NodeAffinityOfPod
from proreus.objects.selectors import NodeSelectorTerm
from proreus.plugins.node_affinity_args import NodeAffinityArgs

REASON_POD = "node(s) didn't match Pod's node affinity/selector"
REASON_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT = "pod affinity terms conflict"

_NAME = "NodeAffinity"
_REJECTED = Status.unresolvable(REASON_POD).with_plugin(_NAME)
_REJECTED_ENFORCED = Status.unresolvable(REASON_ENFORCED).with_plugin(_NAME)


class NodeAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Rejects nodes that do not match required terms, and scores nodes by preferred ones."""

    Args = NodeAffinityArgs
    row_local = True
    looks_at_pods = False

    def __init__(self, args: NodeAffinityArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        added = UNRESTRICTED
        if args.added_affinity is not None:
            added = _parse_strictly(
                msgspec.convert(args.added_affinity, NodeAffinityOfPod, from_attributes=True)
            )
        self._added = added.required
        self._added_preferred = added.preferred or ()

    def sign(self, pod: PodInfo) -> Hashable:
        """Sign the pod's node affinity; equal ones are one object."""
        return node_affinity(pod)

    # ---- filter --------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable
    ) -> Status | frozenset[str] | None:
        """Skip pods that require nothing; return the node names if every term names nodes."""
        # A DaemonSet's pod names its node this way: Filter then runs for that node only.
        spec = pod.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        required = affinity.required if affinity is not None else None
        if required is None:
            if spec.node_selector is None and self._added is None:
                return Status.skip()
            return None
        names: set[str] = set()
        for term in required.node_selector_terms:
            named = _names(term)
            if named is None:
                return None
            names |= named
        if names or not required.node_selector_terms:
            return frozenset(names) if names else None
        return Status.unresolvable(REASON_CONFLICT)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Filter one node."""
        labels, name = node.labels, node.name
        if self._added is not None and not self._added.matches(labels, name):
            return _REJECTED_ENFORCED
        return None if node_affinity(pod).matches(labels, name) else _REJECTED

    def filter_all(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, verdicts: Verdicts
    ) -> None:
        """Filter all nodes."""
        if self._added is not None:
            verdicts.reject_with(~matches_selector(nodes, self._added), _REJECTED_ENFORCED)
        wanted = node_affinity(pod)
        if wanted is not UNRESTRICTED:
            verdicts.reject_with(~wanted.matches_all(nodes), _REJECTED)

    # ---- score ---------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Skip if neither the pod nor the profile has preferred terms."""
        # As in kube-scheduler an empty list is not skipped: every node then scores 0.
        if pod.pod.spec.affinity is None and not self._added_preferred:
            return Status.skip()
        affinity = node_affinity(pod)
        if affinity.preferred is None and not self._added_preferred:
            return Status.skip()
        error = affinity.preferred_error()
        return None if error is None else Status.error(error)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the sum of the weights of the preferred terms that a node matches."""
        labels, name = node.labels, node.name
        terms = self._terms(node_affinity(pod))
        return sum(weight for weight, term in terms if term.matches(labels, name))

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray | int:
        """Return ``score`` for all nodes."""
        terms = self._terms(node_affinity(pod))
        return weigh_terms(nodes, terms) if terms else 0

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Scale the scores to 100 for the best node."""
        return default_normalize(scores)

    def _terms(self, affinity: PodNodeAffinity) -> tuple[WeightedTerm, ...]:
        return (affinity.preferred or ()) + self._added_preferred

    # ---- events --------------------------------------------------------------------------------

    def events_to_register(self) -> Iterable[ClusterEvent]:
        """Register nodes that are new or have other labels."""
        return (
            ClusterEvent(NODE, ADD | UPDATE_NODE_LABEL, self._is_schedulable_after_node_change),
        )

    def _is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        labels, name, added = new.metadata.labels, new.metadata.name, self._added
        if added is not None and not added.matches(labels, name):
            return False
        wanted = node_affinity(pod)
        if not wanted.matches(labels, name):
            # A term that does not parse: kube-scheduler's hint fails then, which queues the pod.
            return wanted.match_error(labels) is not None
        if old is None or not wanted.matches(old.metadata.labels, name):
            return True
        return added is not None and not added.matches(old.metadata.labels, name)


def _names(term: NodeSelectorTerm) -> set[str] | None:
    """Return the node names that a term requires; None if it requires no name."""
    names: set[str] | None = None
    for field in term.match_fields:
        if field.key == "metadata.name" and field.operator == "In":
            names = set(field.values) if names is None else names & set(field.values)
    return names


def _parse_strictly(added: NodeAffinityOfPod) -> PodNodeAffinity:
    parsed = parse_node_affinity(added)
    where = "parsing addedAffinity.{}DuringSchedulingIgnoredDuringExecution: {}"
    required_error = parsed.required.error() if parsed.required is not None else None
    if required_error is not None:
        raise ConfigError(where.format("required", required_error))
    preferred_error = parsed.preferred_error()
    if preferred_error is not None:
        raise ConfigError(where.format("preferred", preferred_error))
    return parsed
