"""HyperNodes of Volcano: a tree of topology domains as objects, and what PodGroups ask of it.

A HyperNode of tier 1 has nodes as members, one of a higher tier HyperNodes: the lower the tier, the
closer are its nodes. Members are named, matched by a regular expression, or selected by labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from proreus.addons.coscheduling.groups import VOLCANO, VOLCANO_GANGS, membership_of
from proreus.addons.group_topology.name_patterns import NamePattern, forget_patterns
from proreus.framework import Handle, NodeTable, ProreusError, Rows, logger
from proreus.objects import (
    ApiStruct,
    LabelSelector,
    ObjectMeta,
    Pod,
    Resource,
    parse_label_selector,
)

log = logger(__name__)

NODE = "Node"


class ExactMatch(ApiStruct, frozen=True):
    """A member by name."""

    name: str = ""


class RegexMatch(ApiStruct, frozen=True):
    """Members whose names contain a match of a regular expression."""

    pattern: str = ""


class MemberSelector(ApiStruct, frozen=True):
    """The members: one of the three."""

    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class HyperNodeMember(ApiStruct, frozen=True):
    """Members of a HyperNode. ``type``: ``Node`` or ``HyperNode``."""

    type: str = NODE
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(ApiStruct, frozen=True):
    """``tier``: the lower, the closer are the nodes. ``tier_name``: what people call it."""

    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class HyperNode(ApiStruct, frozen=True):
    """A topology domain."""

    metadata: ObjectMeta = ObjectMeta()
    spec: HyperNodeSpec = HyperNodeSpec()


HYPER_NODES = Resource(
    "topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", False, HyperNode, custom=True
)


@dataclass(frozen=True)
class TierRequest:
    """What a PodGroup asks for: one HyperNode of at most ``highest_tier``; None: of any tier.

    ``required``: whether the group waits otherwise (``mode: hard``).
    """

    highest_tier: int | None
    required: bool


@dataclass(frozen=True)
class HyperNodeDomain:
    """A HyperNode and its nodes: ``members`` by name, ``rows`` those of the cluster's table."""

    tier: int
    name: str
    members: frozenset[str]
    rows: Rows


class HyperNodes:
    """The HyperNodes of the cluster, as they are now."""

    # Invariant: _domains are those of the HyperNodes now, and of the nodes at _nodes_generation.

    def __init__(self, handle: Handle) -> None:
        self._hyper_nodes: Mapping[str, HyperNode] = handle.store(HYPER_NODES)
        self._gangs = handle.store(VOLCANO_GANGS)
        self._nodes = handle.nodes
        self._domains: tuple[HyperNodeDomain, ...] | None = None
        self._nodes_generation = -1
        handle.on_change(HYPER_NODES, self._changed)

    def _changed(self, old: HyperNode | None, new: HyperNode | None) -> None:
        self._domains = None
        # Said here and not where members are resolved: that is done again at each change of a node.
        if new is None:
            return
        try:
            for member in new.spec.members:
                _matching(member.selector, {})
        except ProreusError as error:
            log.warning("Members of a HyperNode are unknown", name=new.metadata.name, err=error)

    def request_of(self, pod: Pod) -> TierRequest | None:
        """Return what the PodGroup of a pod asks for; None if it asks for nothing."""
        membership = membership_of(pod)
        if membership is None or membership.source != VOLCANO:
            return None
        gang = self._gangs.get(membership.object_key)
        asked = None if gang is None else gang.spec.network_topology
        if asked is None:
            return None
        highest = asked.highest_tier_allowed
        if asked.highest_tier_name:
            named = [one.spec for one in self._hyper_nodes.values()]
            tiers = [one.tier for one in named if one.tier_name == asked.highest_tier_name]
            # A name that no HyperNode has allows none.
            highest = max(tiers, default=-1)
        return TierRequest(highest, asked.mode != "soft")

    def domains(self) -> Sequence[HyperNodeDomain]:
        """Return each HyperNode with its nodes, the lowest tier first."""
        # Patterns and selectors are held against every node of the cluster: not for each attempt.
        if self._domains is None or self._nodes_generation != self._nodes.nodes_generation:
            self._domains = tuple(self._resolve(self._nodes))
            forget_patterns()
            self._nodes_generation = self._nodes.nodes_generation
        return self._domains

    def _resolve(self, nodes: NodeTable) -> Iterator[HyperNodeDomain]:
        labels = {one.name: one.node.metadata.labels for one in nodes if one.node is not None}
        resolved: dict[str, frozenset[str]] = {}
        ordered = sorted(self._hyper_nodes.values(), key=lambda h: (h.spec.tier, h.metadata.name))
        for hyper_node in ordered:
            members = (self._members(one, labels, resolved) for one in hyper_node.spec.members)
            name = hyper_node.metadata.name
            resolved[name] = frozenset().union(*members)
            rows = np.array([nodes.rows[member] for member in resolved[name]], dtype=np.intp)
            yield HyperNodeDomain(hyper_node.spec.tier, name, resolved[name], rows)

    def _members(
        self,
        member: HyperNodeMember,
        labels: Mapping[str, Mapping[str, str]],
        resolved: Mapping[str, frozenset[str]],
    ) -> Iterable[str]:
        if member.type == NODE:
            return _selected(member.selector, labels)
        # Only those of lower tiers, or before it in its own: there is no way back in a tree.
        known = {name: self._hyper_nodes[name].metadata.labels for name in resolved}
        chosen = _selected(member.selector, known)
        return frozenset().union(*(resolved[name] for name in chosen))


def _selected(selector: MemberSelector, labels: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the names that a selector matches, none of one that cannot be read.

    ``labels``: of all objects, by name.
    """
    try:
        return _matching(selector, labels)
    except ProreusError:
        return set()


def _matching(selector: MemberSelector, labels: Mapping[str, Mapping[str, str]]) -> set[str]:
    if selector.exact_match is not None:
        return {selector.exact_match.name} & labels.keys()
    if selector.regex_match is not None:
        return NamePattern(selector.regex_match.pattern).search(labels)
    if selector.label_match is not None:
        wanted = parse_label_selector(selector.label_match)
        return {name for name, own in labels.items() if wanted.matches(own)}
    return set()
