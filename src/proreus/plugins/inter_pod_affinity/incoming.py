"""The affinity terms of the incoming pod as queries over existing pods.

kube-scheduler adds the namespaces that a term's namespaceSelector selects to its namespaces, keeps
the selector, and matches it against an empty set of labels later. Hence a selector that only
requires labels to be absent matches the pods of every namespace.

Worked example: ``namespaces: [a]`` and ``namespaceSelector: {team: x}``, which only namespace ``b``
matches: the query is for pods of ``a`` and ``b``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from proreus.bounded_cache import BoundedCache
from proreus.framework import many_terms
from proreus.framework.affinity_terms import (
    NO_LABELS,
    NO_TERMS,
    AffinityTerm,
    AffinityTerms,
    affinity_terms_of,
)
from proreus.framework.handle import Handle
from proreus.framework.many_terms import ManyTerms, WeightedTerm
from proreus.framework.pod_label_groups import PodMatch, PodQuery
from proreus.kubernetes_version import Change
from proreus.objects.kinds import NAMESPACES, Namespace
from proreus.objects.pod import Pod
from proreus.objects.selectors import EVERYTHING, NOTHING

K = TypeVar("K")


class IncomingTerms(Struct, frozen=True, eq=False):
    """All terms of an incoming pod.

    ``all_required``: matches pods that match *all* required affinity terms; None without terms.
    ``required_keys``: their topology keys, each once. ``required_anti``: queries by topology key.
    ``preferred``: queries by topology key and weight, which is negative for anti-affinity.
    ``many_required``, ``many_required_anti``, ``many_preferred``: terms that are too many for
    queries, in place of these.
    """

    all_required: PodQuery | None = None
    required_keys: tuple[str, ...] = ()
    required_anti: Mapping[str, tuple[PodQuery, ...]] = {}
    preferred: Mapping[tuple[str, int], tuple[PodQuery, ...]] = {}
    error: str = ""
    many_required: ManyTerms | None = None
    many_required_anti: ManyTerms | None = None
    many_preferred: ManyTerms | None = None

    @property
    def has_preferred(self) -> bool:
        """Whether there are preferred terms."""
        return bool(self.preferred) or self.many_preferred is not None


NO_INCOMING_TERMS = IncomingTerms()

_MOST_EVALUATIONS = 50_000
"""Of namespaceSelectors, each for every namespace."""


def _matches(terms: IncomingTerms) -> Iterator[PodMatch]:
    if terms.all_required is not None:
        yield from terms.all_required.matches
    for queries in (*terms.required_anti.values(), *terms.preferred.values()):
        for query in queries:
            yield from query.matches


class IncomingTermsCache:
    """The ``IncomingTerms`` of pods; pods with equal terms share them."""

    # Invariant: cached terms were computed from the namespaces as they are now.

    def __init__(self, handle: Handle) -> None:
        self._namespaces: Mapping[str, Namespace] = handle.store(NAMESPACES)
        self._cache: BoundedCache[int, tuple[AffinityTerms, IncomingTerms]] = BoundedCache(
            32 * 2**20
        )
        self._merges = handle.feature_gates.includes(Change.NAMESPACE_SELECTOR_MERGED)
        handle.on_change(NAMESPACES, self._namespace_changed)

    def terms_of(self, pod: Pod) -> IncomingTerms:
        """Return the terms of a pod."""
        terms = affinity_terms_of(pod)
        if terms is NO_TERMS:
            return NO_INCOMING_TERMS
        # `affinity_terms_of` returns one object for equal terms. An id may be reused after that
        # object is gone, hence the entry holds it and is compared by identity.
        cached = self._cache.get(id(terms))
        if cached is not None and cached[0] is terms:
            return cached[1]
        ready = self._prepare(terms)
        # The namespaces that a selector selects are named in each query.
        named = sum(len(m.namespaces or ()) for m in _matches(ready))
        self._cache.put(id(terms), (terms, ready), 2 * terms.size_bytes + 100 * named)
        return ready

    def namespace_labels(self, pod: Pod) -> Mapping[str, str]:
        """Return the labels of a pod's namespace; none if the namespace is unknown."""
        labels = self._labels_of(pod.metadata.namespace)
        return NO_LABELS if labels is None else labels

    def _prepare(self, terms: AffinityTerms) -> IncomingTerms:
        # Each list on its own: a pod with thousands of preferences may require one thing.
        required = [WeightedTerm(term) for term in terms.required]
        required_anti = [WeightedTerm(term) for term in terms.required_anti]
        preferred = [
            *(WeightedTerm(term, weight) for weight, term in terms.preferred),
            *(WeightedTerm(term, -weight) for weight, term in terms.preferred_anti),
        ]
        many_required = self._many(required)
        many_required_anti = self._many(required_anti)
        many_preferred = self._many(preferred)
        matches = () if many_required else tuple(self._match(one.term) for one in required)
        return IncomingTerms(
            all_required=PodQuery(tuple(dict.fromkeys(matches))) if matches else None,
            required_keys=tuple(dict.fromkeys(term.topology_key for term in terms.required)),
            required_anti=self._queries(
                (one.term.topology_key, one.term)
                for one in (() if many_required_anti else required_anti)
            ),
            preferred=self._queries(
                ((one.term.topology_key, one.weight), one.term)
                for one in (() if many_preferred else preferred)
            ),
            error=terms.error,
            many_required=many_required,
            many_required_anti=many_required_anti,
            many_preferred=many_preferred,
        )

    def _many(self, terms: Sequence[WeightedTerm]) -> ManyTerms | None:
        """Return the terms to be matched together; None if there are few."""
        # To ask each namespace for each selector takes a microsecond, and a set of their names
        # is up to a megabyte.
        selectors = {one.term.namespace_selector for one in terms} - {NOTHING, EVERYTHING}
        if (
            len(terms) <= many_terms.MOST_TERMS
            and len(selectors) * len(self._namespaces) <= _MOST_EVALUATIONS
        ):
            return None
        return ManyTerms(terms, self._labels_of, everywhere_if_empty=not self._merges)

    def _labels_of(self, namespace: str) -> Mapping[str, str] | None:
        known = self._namespaces.get(namespace)
        return None if known is None else known.metadata.labels

    def _queries(self, terms: Iterable[tuple[K, AffinityTerm]]) -> Mapping[K, tuple[PodQuery, ...]]:
        found: dict[K, list[PodQuery]] = {}
        for key, term in terms:
            found.setdefault(key, []).append(PodQuery((self._match(term),)))
        return {key: tuple(queries) for key, queries in found.items()}

    def _match(self, term: AffinityTerm) -> PodMatch:
        selector = term.namespace_selector
        if selector.nothing:
            return PodMatch(term.namespaces, term.selector)
        # Up to 1.36 kube-scheduler evaluated the selector again, against no labels at all.
        if selector.empty or (not self._merges and selector.matches(NO_LABELS)):
            return PodMatch(None, term.selector)
        selected = (
            name
            for name, namespace in self._namespaces.items()
            if selector.matches(namespace.metadata.labels)
        )
        return PodMatch(term.namespaces.union(selected), term.selector)

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        before = None if old is None else old.metadata.labels
        if new is None or before != new.metadata.labels:
            self._cache.clear()
