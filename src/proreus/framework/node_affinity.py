"""Which nodes a pod must, or would like to, be on: nodeSelector and node affinity, parsed.

Parsed values are shared by pods that ask for the same, so that a thousand replicas are parsed once,
and can be compared by identity. They judge one node, or a table as a mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from proreus.framework.node_table import NodeTable
from proreus.framework.verdicts import BoolArray
from proreus.objects.pod import NodeAffinity, Pod, PodSpec
from proreus.objects.selectors import (
    EVERYTHING,
    ParsedNodeSelector,
    ParsedNodeTerm,
    PreferredSchedulingTerm,
    Selector,
    parse_node_selector,
    parse_node_term,
    selector_of_map,
)

WeightedTerm = tuple[int, ParsedNodeTerm]


@dataclass(frozen=True, slots=True, eq=False)
class PodNodeAffinity:
    """What a pod says about nodes.

    ``selector``: of ``spec.nodeSelector``. ``required``: None where nothing is required by
    affinity; without usable terms no node does. ``preferred``: the terms that count, with their
    weights; None where the list is absent.
    """

    selector: Selector = EVERYTHING
    required: ParsedNodeSelector | None = None
    preferred: tuple[WeightedTerm, ...] | None = None

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Tell whether a node has all that is required; terms that do not parse match nothing."""
        return self.selector.matches(labels) and (
            self.required is None or self.required.matches(labels, name)
        )

    def matches_all(self, nodes: NodeTable) -> BoolArray:
        """Return the mask of nodes that have all that is required."""
        mask = nodes.matches(self.selector)
        return mask if self.required is None else mask & matches_selector(nodes, self.required)

    def match_error(self, labels: Mapping[str, str]) -> str | None:
        """Return why it cannot be told that a node does not match: a term that does not parse."""
        if self.required is None or not self.selector.matches(labels):
            return None
        return self.required.error()

    def preferred_error(self) -> str | None:
        """Return the first parse error of a preferred term."""
        return next((term.error for _, term in self.preferred or () if term.error), None)


UNRESTRICTED = PodNodeAffinity()


class _ParseCache:
    """What was parsed, by what was said; the last pod is remembered by itself, as it is asked
    about several times in a row."""

    limit = 10_000

    def __init__(self) -> None:
        self._parsed: dict[object, PodNodeAffinity] = {}
        self._last_spec: PodSpec | None = None
        self._last = UNRESTRICTED

    def of(self, spec: PodSpec, affinity: NodeAffinity | None) -> PodNodeAffinity:
        if spec is self._last_spec:
            return self._last
        cache_key = (tuple(sorted((spec.node_selector or {}).items())), affinity)
        parsed = self._parsed.get(cache_key)
        if parsed is None:
            if len(self._parsed) >= self.limit:
                self._parsed.clear()
            parsed = self._parsed[cache_key] = parse_node_affinity(affinity, spec.node_selector)
        self._last_spec, self._last = spec, parsed
        return parsed


_shared = _ParseCache()


def node_affinity_of(pod: Pod) -> PodNodeAffinity:
    """Return what a pod says about nodes; the same object for pods that say the same."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None and not spec.node_selector:
        return UNRESTRICTED
    return _shared.of(spec, affinity)


def parse_node_affinity(
    affinity: NodeAffinity | None, node_selector: Mapping[str, str] | None = None
) -> PodNodeAffinity:
    """Parse node affinity, leniently: what does not parse is kept with its error."""
    selector = selector_of_map(node_selector)
    if affinity is None:
        return PodNodeAffinity(selector)
    return PodNodeAffinity(
        selector,
        None if affinity.required is None else parse_node_selector(affinity.required),
        None if affinity.preferred is None else parse_preferred(affinity.preferred),
    )


def parse_preferred(terms: tuple[PreferredSchedulingTerm, ...]) -> tuple[WeightedTerm, ...]:
    """Parse preferred terms; those that weigh or say nothing do not count."""
    parsed = ((term.weight, parse_node_term(term.preference)) for term in terms if term.weight)
    return tuple((weight, term) for weight, term in parsed if term is not None)


def matches_selector(nodes: NodeTable, selector: ParsedNodeSelector) -> BoolArray:
    """Return the mask of nodes that meet any term."""
    mask = np.zeros(len(nodes), dtype=np.bool_)
    for term in selector.terms:
        mask |= matches_term(nodes, term)
    return mask


def matches_term(nodes: NodeTable, term: ParsedNodeTerm) -> BoolArray:
    """Return the mask of nodes that meet a term."""
    if term.error is not None:
        return np.zeros(len(nodes), dtype=np.bool_)
    mask = nodes.matches(term.labels)
    for _, operator, name in term.fields:
        row = nodes.rows.get(name)
        if operator == "In":
            only = np.zeros_like(mask)
            if row is not None:
                only[row] = mask[row]
            mask = only
        elif row is not None:
            mask[row] = False
    return mask
