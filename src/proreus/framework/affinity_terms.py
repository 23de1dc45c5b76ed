"""The inter-pod (anti-)affinity terms: of one pod, parsed, and of all existing pods, counted.

Pods of one workload bring the same terms: what was parsed once is shared by all that are written
alike. Terms are hashable values, so that whoever counts pods by term can share the counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from proreus.framework.count_columns import CountColumn, CountColumns
from proreus.framework.selector_index import SelectorIndex
from proreus.objects.pod import Pod, PodAffinity, PodAffinityTerm
from proreus.objects.selectors import Selector, SelectorError, parse_label_selector

_SHARED_LIMIT = 20_000

NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Pods of some namespaces with certain labels, and the label that says what is near.

    ``namespaces`` are names; a pod counts as well when ``namespace_selector`` selects the labels
    of its namespace (or whatever the caller holds for those).
    """

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Work out the hash once: terms are looked up on every cycle."""
        value = hash((self.namespaces, self.namespace_selector, self.selector, self.topology_key))
        object.__setattr__(self, "_hash", value)

    def __hash__(self) -> int:
        return self._hash

    def matches(
        self,
        namespace: str,
        labels: Mapping[str, str],
        namespace_labels: Mapping[str, str] = NO_LABELS,
    ) -> bool:
        """Tell whether a pod with these labels, in this namespace, is meant."""
        return (
            namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        ) and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    """The four lists of a pod; preferred terms come with their weights.

    A list with a selector that does not parse is empty, and ``error`` says why.
    """

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[int, AffinityTerm], ...] = ()
    preferred_anti: tuple[tuple[int, AffinityTerm], ...] = ()
    error: str = ""


NO_TERMS = AffinityTerms()

_encode = msgspec.msgpack.Encoder().encode
_shared: dict[tuple[str, bytes, bytes], AffinityTerms] = {}


def affinity_terms_of(pod: Pod) -> AffinityTerms:
    """Return the terms of a pod, those of its own namespace made explicit."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    namespace = pod.metadata.namespace
    key = namespace, _encode(affinity.pod_affinity), _encode(affinity.pod_anti_affinity)
    terms = _shared.get(key)
    if terms is None:
        if len(_shared) >= _SHARED_LIMIT:
            _shared.clear()
        affinity_spec, anti_affinity_spec = affinity.pod_affinity, affinity.pod_anti_affinity
        terms = _shared[key] = _parse(
            namespace, affinity_spec or PodAffinity(), anti_affinity_spec or PodAffinity()
        )
    return terms


def _parse(
    namespace: str, affinity_spec: PodAffinity, anti_affinity_spec: PodAffinity
) -> AffinityTerms:
    errors: list[str] = []

    def required(name: str, terms: tuple[PodAffinityTerm, ...]) -> tuple[AffinityTerm, ...]:
        try:
            return tuple(_parse_term(namespace, term) for term in terms)
        except SelectorError as error:
            errors.append(f"{name}: {error}")
            return ()

    def preferred(name: str, affinity: PodAffinity) -> tuple[tuple[int, AffinityTerm], ...]:
        terms = tuple(weighted.pod_affinity_term for weighted in affinity.preferred)
        parsed = required(name, terms)
        return tuple(zip((w.weight for w in affinity.preferred), parsed, strict=False))

    lists = (
        required("requiredAffinityTerms", affinity_spec.required),
        required("requiredAntiAffinityTerms", anti_affinity_spec.required),
        preferred("preferredAffinityTerms", affinity_spec),
        preferred("preferredAntiAffinityTerms", anti_affinity_spec),
    )
    text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else ""
    return AffinityTerms(*lists, error=text)


def _parse_term(namespace: str, term: PodAffinityTerm) -> AffinityTerm:
    own = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        namespaces=frozenset((namespace,) if own else term.namespaces),
        namespace_selector=parse_label_selector(term.namespace_selector),
        selector=parse_label_selector(term.label_selector),
        topology_key=term.topology_key,
    )


# ---- of existing pods ----------------------------------------------------------------------------


class ExistingTerm:
    """A term that existing pods have.

    ``multiplier``: what one such pod counts: 1, or the weight of a preferred term, negative for
    anti-affinity. ``by_row``: the sum of that by row.
    """

    __slots__ = ("by_row", "column", "multiplier", "pods", "term")

    def __init__(self, term: AffinityTerm, multiplier: int) -> None:
        self.term = term
        self.multiplier = multiplier
        self.pods = 0
        self.by_row: dict[int, int] = {}
        self.column: CountColumn | None = None

    def on_evicted(self, column: CountColumn) -> None:
        """Keep the column no longer."""
        self.column = None


class ExistingTerms:
    """The terms of one sort, to be found by the pods that they mean."""

    __slots__ = ("_anchored", "_columns", "_terms")

    def __init__(self, columns: CountColumns) -> None:
        self._columns = columns
        self._terms: dict[tuple[int, AffinityTerm], ExistingTerm] = {}
        self._anchored: SelectorIndex[ExistingTerm] = SelectorIndex()

    def __len__(self) -> int:
        return len(self._terms)

    def __iter__(self) -> Iterator[ExistingTerm]:
        return iter(self._terms.values())

    def matching(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> list[ExistingTerm]:
        """Return the terms that mean a pod with these labels."""
        if not self._terms:
            return []
        return [
            existing
            for existing in self._anchored.candidates(labels)
            if existing.term.matches(namespace, labels, namespace_labels)
        ]

    def add(self, row: int, term: AffinityTerm, multiplier: int = 1) -> None:
        """Count a pod in that has a term."""
        existing = self._terms.get((multiplier, term))
        if existing is None:
            existing = self._terms[multiplier, term] = ExistingTerm(term, multiplier)
            self._anchored.add(term.selector, existing)
        existing.pods += 1
        existing.by_row[row] = existing.by_row.get(row, 0) + multiplier
        if existing.column is not None:
            existing.column.counts[row] += multiplier

    def remove(self, row: int, term: AffinityTerm, multiplier: int = 1) -> None:
        """Count a pod out that has a term."""
        existing = self._terms[multiplier, term]
        existing.pods -= 1
        left = existing.by_row[row] - multiplier
        if left:
            existing.by_row[row] = left
        elif multiplier:
            del existing.by_row[row]
        if existing.column is not None:
            existing.column.counts[row] -= multiplier
        if not existing.pods:
            del self._terms[multiplier, term]
            self._anchored.discard(term.selector, existing)
            self._columns.discard(existing)

    def snapshot(self) -> dict[tuple[int, AffinityTerm], tuple[int, dict[int, int]]]:
        """Return all that is counted, to be compared; a column must agree with it."""
        for existing in self:
            if existing.column is not None:
                counts = existing.column.counts
                assert {r: int(c) for r, c in enumerate(counts) if c} == existing.by_row
        return {key: (one.pods, dict(one.by_row)) for key, one in self._terms.items()}
