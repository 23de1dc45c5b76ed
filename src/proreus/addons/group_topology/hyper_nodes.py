"""HyperNodes of Volcano: a tree of topology domains as objects, and the requests of PodGroups.

A HyperNode of tier 1 has nodes as members, one of a higher tier HyperNodes: the lower the tier, the
closer are its nodes. Members are named, matched by a regular expression, or selected by labels.

RE2 reads regular expressions as Go's ``regexp`` does, and takes time linear in a name. Python's
``re`` backtracks: ``(a+)+$`` takes seconds for a name of 26 letters, and nothing else runs then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import re2

from proreus.addons.coscheduling.groups import VOLCANO, VOLCANO_GANGS, membership_of
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

MAX_SELECTORS = 100
"""Of the members of one HyperNode, by pattern or by label: each is held against all nodes."""

MAX_HYPER_NODES_OF_A_NODE = 32
"""On average: in a tree, a node belongs to one of each tier."""
_FEWEST_NODES = 1_000

_MOST_SECONDS = 0.2
"""The longest time for which one attempt resolves the members of HyperNodes."""

MAX_INSTRUCTIONS = 2_000
"""Of a compiled pattern: each character of a name may cost a step for each of them. Some 170 names
of nodes fit into one pattern."""

_MAX_MEMORY = 1 << 20
"""Bytes for a pattern and the states found while it is used. With less, patterns of as many
instructions as are allowed are matched a hundred times slower."""

_OF_ONE_TEXT = ("(?", r"\A", r"\z", r"\Q")
"""Parts that mean something else where each name is a line, or reach beyond the pattern."""


class ExactMatch(ApiStruct, frozen=True):
    """A member by name."""

    name: str = ""


class RegexMatch(ApiStruct, frozen=True):
    """Members with names that contain a match of a regular expression."""

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
    """``tier``: the lower, the closer are the nodes. ``tier_name``: its name."""

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
    """The request of a PodGroup: one HyperNode of at most ``highest_tier``, None for any tier.

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

    # Invariant: _found are the first domains of the HyperNodes now and of the nodes at
    # _nodes_generation, and _resolving finds the others; None: all are found.

    def __init__(self, handle: Handle) -> None:
        self._hyper_nodes: Mapping[str, HyperNode] = handle.store(HYPER_NODES)
        self._gangs = handle.store(VOLCANO_GANGS)
        self._nodes = handle.nodes
        self._found: list[HyperNodeDomain] = []
        self._resolving: Iterator[None] | None = None
        self._nodes_generation = -1
        handle.on_change(HYPER_NODES, self._changed)

    def _changed(self, old: HyperNode | None, new: HyperNode | None) -> None:
        self._nodes_generation = -1
        # Said here and not where members are resolved: that is done again at each change of a node.
        if new is None:
            return
        try:
            if (number := _number_of_selectors(new)) > MAX_SELECTORS:
                raise ProreusError(
                    f"{number} patterns and label selectors, at most {MAX_SELECTORS} are allowed"
                )
            for member in new.spec.members:
                _matching(member.selector, {})
        except ProreusError as error:
            log.warning("Members of a HyperNode are unknown", name=new.metadata.name, err=error)

    def request_of(self, pod: Pod) -> TierRequest | None:
        """Return the request of a pod's PodGroup, None without one."""
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

    def domains(self) -> Sequence[HyperNodeDomain] | None:
        """Return each HyperNode with its nodes, the lowest tier first.

        Return None if that takes longer than one attempt may; the next call goes on.
        """
        # Patterns and selectors are held against every node of the cluster: not for each attempt.
        if self._nodes_generation != self._nodes.nodes_generation:
            self._found = []
            self._resolving = self._resolve(self._nodes, self._found)
            self._nodes_generation = self._nodes.nodes_generation
        if self._resolving is not None:
            until = perf_counter() + _MOST_SECONDS
            for _ in self._resolving:
                if perf_counter() > until:
                    return None
            self._resolving = None
            # It keeps the last 128 patterns, up to 1 MiB each.
            re2.purge()
        return self._found

    def _resolve(self, nodes: NodeTable, found: list[HyperNodeDomain]) -> Iterator[None]:
        """Add the domains to ``found``, a member of a HyperNode at each step."""
        labels = {one.name: one.node.metadata.labels for one in nodes if one.node is not None}
        resolved: dict[str, frozenset[str]] = {}
        left = MAX_HYPER_NODES_OF_A_NODE * max(len(labels), _FEWEST_NODES)
        ordered = sorted(self._hyper_nodes.values(), key=lambda h: (h.spec.tier, h.metadata.name))
        for hyper_node in ordered:
            name = hyper_node.metadata.name
            members: set[str] = set()
            is_usable = _number_of_selectors(hyper_node) <= MAX_SELECTORS
            for one in hyper_node.spec.members if is_usable else ():
                members.update(self._members(one, labels, resolved))
                yield
            if len(members) > left:
                log.warning(
                    "HyperNodes have too many members; those from here on are not used", name=name
                )
                return
            left -= len(members)
            resolved[name] = frozenset(members)
            rows = np.array([nodes.rows[member] for member in members], dtype=np.intp)
            found.append(HyperNodeDomain(hyper_node.spec.tier, name, resolved[name], rows))

    def _members(
        self,
        member: HyperNodeMember,
        labels: Mapping[str, Mapping[str, str]],
        resolved: Mapping[str, frozenset[str]],
    ) -> Iterable[str]:
        """Return the names of the nodes that a member stands for, none if it cannot be read.

        ``labels``: of all nodes, by name. ``resolved``: the nodes of other HyperNodes.
        """
        nodes, selector = self._nodes, member.selector
        try:
            if member.type == NODE and selector.label_match is not None:
                mask = nodes.matches(parse_label_selector(selector.label_match))
                found = [nodes[row] for row in np.flatnonzero(mask).tolist()]
                return [info.name for info in found if info.node is not None]
            if member.type == NODE:
                return _matching(selector, labels)
            # Only those of lower tiers, or before it in its own: there is no way back in a tree.
            known = {name: self._hyper_nodes[name].metadata.labels for name in resolved}
            return frozenset().union(*(resolved[name] for name in _matching(selector, known)))
        except ProreusError:
            return ()


def _number_of_selectors(hyper_node: HyperNode) -> int:
    return sum(one.selector.exact_match is None for one in hyper_node.spec.members)


def _matching(selector: MemberSelector, labels: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the names that a selector matches; ``labels``: of all objects, by name."""
    if selector.exact_match is not None:
        return {selector.exact_match.name} & labels.keys()
    if selector.regex_match is not None:
        return NamePattern(selector.regex_match.pattern).search(labels)
    if selector.label_match is not None:
        wanted = parse_label_selector(selector.label_match)
        return {name for name, own in labels.items() if wanted.matches(own)}
    return set()


class PatternError(ProreusError):
    """A text is no regular expression, or a larger one than may be used."""


class NamePattern:
    """A regular expression in RE2's syntax.

    Raises:
        PatternError: it cannot be read, or has more than ``MAX_INSTRUCTIONS``.
    """

    def __init__(self, text: str) -> None:
        shown = repr(text if len(text) <= 60 else f"{text[:57]}...")
        try:
            self._pattern = _compiled(text)
            # For all names in one call, each a line: a call for each takes twenty times as long.
            in_lines = not any(part in text for part in _OF_ONE_TEXT)
            self._lines = _compiled(f"(?m)^.*?(?:{text}).*$") if in_lines else None
        except UnicodeEncodeError as error:  # half of a surrogate pair
            raise PatternError(f"{shown}: not UTF-8") from error
        except re2.error as error:
            raise PatternError(f"{shown}: {error.args[0].decode(errors='replace')}") from error
        size = self._pattern.programsize
        if size > MAX_INSTRUCTIONS:
            raise PatternError(
                f"{shown}: {size} instructions, at most {MAX_INSTRUCTIONS} are allowed"
            )

    def search(self, names: Collection[str]) -> set[str]:
        """Return the names that contain a match. None of them is empty or has a line break."""
        if not names:
            return set()
        if self._lines is None:
            return {name for name in names if self._pattern.search(name)}
        return {name.decode() for name in self._lines.findall("\n".join(names).encode())}


def _compiled(text: str) -> Any:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False  # it would write to stderr, past the log
    options.never_capture = True
    options.never_nl = True
    return re2.compile(text, options)
