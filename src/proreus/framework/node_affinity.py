"""nodeSelector and node affinity of pods, parsed, matched against one node or a whole table.

Pods with the same nodeSelector and affinity share one parsed value, so that a thousand replicas are
parsed once and can be compared by identity.

Example: ``disk=ssd`` and preferred zone a (weight 5) parse to ``selector`` disk=ssd and
``preferred`` ((5, zone in (a)),). ``matches_all`` is a mask of the nodes with disk=ssd,
``weigh_terms`` an array with 5 for the nodes in zone a.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct

from proreus.base.bounded_cache import (
    BYTES_AN_ENCODED_BYTE,
    BYTES_AN_ENTRY,
    BoundedCache,
    RepeatingCache,
    approximate_size,
)
from proreus.framework.label_columns import mask_of
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import BoolArray, IntArray
from proreus.objects.pod import NodeAffinity, Pod, PodSpec
from proreus.objects.selectors import (
    EVERYTHING,
    NodeSelector,
    ParsedNodeSelector,
    ParsedNodeTerm,
    PreferredSchedulingTerm,
    Selector,
    parse_node_selector,
    parse_node_term,
    selector_of_map,
)

_encode = msgspec.msgpack.Encoder().encode

WeightedTerm = tuple[int, ParsedNodeTerm]


class PodNodeAffinity(Struct, frozen=True, eq=False):
    """A pod's requirements and preferences about nodes.

    ``selector``: of ``spec.nodeSelector``. ``required``: None if affinity requires nothing; if it
    has no usable term, no node matches. ``preferred``: the terms that count, with their weights;
    None if the list is absent.
    """

    selector: Selector = EVERYTHING
    required: ParsedNodeSelector | None = None
    preferred: tuple[WeightedTerm, ...] | None = None
    size_bytes: int = BYTES_AN_ENTRY
    """About how much memory it takes."""

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether a node matches all that is required; an invalid term matches nothing."""
        return self.selector.matches(labels) and (
            self.required is None or self.required.matches(labels, name)
        )

    def matches_all(self, nodes: NodeTable) -> BoolArray:
        """Return the mask of nodes that match all that is required."""
        mask = nodes.matches(self.selector)
        return mask if self.required is None else mask & matches_selector(nodes, self.required)

    def match_error(self, labels: Mapping[str, str]) -> str | None:
        """Return the parse error that leaves open whether a node matches, or None."""
        if self.required is None or not self.selector.matches(labels):
            return None
        return self.required.error()

    def preferred_error(self) -> str | None:
        """Return the first parse error of a preferred term."""
        return next((term.error for _, term in self.preferred or () if term.error), None)


UNRESTRICTED = PodNodeAffinity()


def _key_of(spec: PodSpec) -> bytes:
    # By encoding: it is hashed and compared faster than the objects, and its length says how much
    # memory an entry takes.
    return _encode((sorted((spec.node_selector or {}).items()), _written(spec)))


def _parsed(key: bytes, spec: PodSpec) -> tuple[PodNodeAffinity, int]:
    size_bytes = BYTES_AN_ENTRY + BYTES_AN_ENCODED_BYTE * len(key)
    return parse_node_affinity(_written(spec), spec.node_selector, size_bytes), size_bytes


# Several plugins parse the same pod one after the other, one of them for each changed node.
_shared = RepeatingCache(128 * 2**20, _key_of, _parsed)


def node_affinity(pod: PodInfo) -> PodNodeAffinity:
    """Return a pod's node affinity, parsed once a pod; see ``node_affinity_of``."""
    known: PodNodeAffinity | None = pod.node_affinity
    if known is None:
        known = pod.node_affinity = node_affinity_of(pod.pod)
    return known


def node_affinity_of(pod: Pod) -> PodNodeAffinity:
    """Return a pod's node affinity; the same object for pods with the same affinity."""
    spec = pod.spec
    restricted = bool(spec.node_selector) or _written(spec) is not None
    return _shared.of(spec) if restricted else UNRESTRICTED


def _written(spec: PodSpec) -> NodeAffinity | None:
    return None if spec.affinity is None else spec.affinity.node_affinity


def parse_node_affinity(
    affinity: NodeAffinity | None,
    node_selector: Mapping[str, str] | None = None,
    size_bytes: int = BYTES_AN_ENTRY,
) -> PodNodeAffinity:
    """Parse node affinity; terms that do not parse are kept with their errors."""
    selector = selector_of_map(node_selector)
    if affinity is None:
        return PodNodeAffinity(selector, size_bytes=size_bytes)
    return PodNodeAffinity(
        selector,
        None if affinity.required is None else parse_node_selector(affinity.required),
        None if affinity.preferred is None else parse_preferred(affinity.preferred),
        size_bytes,
    )


def parse_preferred(terms: tuple[PreferredSchedulingTerm, ...]) -> tuple[WeightedTerm, ...]:
    """Parse preferred terms; those of weight 0 and empty ones do not count."""
    parsed = ((term.weight, parse_node_term(term.preference)) for term in terms if term.weight)
    return tuple((weight, term) for weight, term in parsed if term is not None)


_selectors: BoundedCache[NodeSelector, ParsedNodeSelector] = BoundedCache(32 * 2**20)


def parsed_node_selector(selector: NodeSelector) -> ParsedNodeSelector:
    """Parse the node selector of a volume or a slice, equal ones once."""
    parsed = _selectors.get(selector)
    if parsed is None:
        parsed = parse_node_selector(selector)
        size_bytes = approximate_size(selector) + approximate_size(parsed)
        _selectors.put(selector, parsed, BYTES_AN_ENTRY + size_bytes)
    return parsed


def matches_selector(nodes: NodeTable, selector: ParsedNodeSelector) -> BoolArray:
    """Return the mask of nodes that match any term."""
    rows = _rows_for(nodes, selector.terms)
    mask: BoolArray | None = None
    for term in selector.terms:
        matching = _mask_of_term(nodes, term, rows)
        # Terms are ORed, so one that matches everywhere decides; one that matches nowhere, such as
        # an invalid term, adds nothing and costs no pass over the nodes.
        if matching is True:
            return np.ones(len(nodes), dtype=np.bool_)
        if matching is not False:
            mask = matching if mask is None else mask | matching
            if mask.all():
                return mask
    return np.zeros(len(nodes), dtype=np.bool_) if mask is None else mask


def weigh_terms(nodes: NodeTable, terms: Sequence[WeightedTerm]) -> IntArray:
    """Return for each node the sum of the weights of the terms that it matches."""
    scores = np.zeros(len(nodes), dtype=np.int64)
    weight_of_all = 0
    rows = _rows_for(nodes, [term for _, term in terms])
    times: dict[int, IntArray] = {}
    for weight, term in terms:
        matching = _mask_of_term(nodes, term, rows)
        if matching is True:
            weight_of_all += weight
        elif matching is not False:
            # Multiplied once for each weight, of which there are a hundred.
            if weight not in times:
                times[weight] = np.zeros(len(nodes), dtype=np.int64)
            times[weight] += matching
    for weight, number in times.items():
        scores += number * weight
    return scores + weight_of_all


def _rows_for(nodes: NodeTable, terms: Sequence[ParsedNodeTerm]) -> Mapping[str, int]:
    """Return the rows by name if a term needs them: a view has to build the mapping."""
    return nodes.rows if any(term.fields for term in terms) else {}


def _mask_of_term(
    nodes: NodeTable, term: ParsedNodeTerm, rows: Mapping[str, int]
) -> BoolArray | bool:
    """Return the mask of nodes that match a term, as a bool if all are alike."""
    if term.error is not None:
        return False
    matching = mask_of(nodes, term.labels)
    if matching is False or not term.fields:
        return matching
    wanted = {name for _, operator, name in term.fields if operator == "In"}
    unwanted = {name for _, operator, name in term.fields if operator != "In"}
    # The only field is metadata.name. DaemonSet pods each name one node: looked up by name, such a
    # pod costs one row instead of a comparison with 5,000 names.
    if wanted:
        row = rows.get(next(iter(wanted)))
        if row is None or len(wanted) > 1 or wanted & unwanted:
            return False
        if matching is not True and not matching[row]:
            return False
        mask = np.zeros(len(nodes), dtype=np.bool_)
        mask[row] = True
        return mask
    without = [row for row in map(rows.get, unwanted) if row is not None]
    if not without:
        return matching
    mask = np.ones(len(nodes), dtype=np.bool_) if matching is True else matching
    mask[without] = False
    return mask
