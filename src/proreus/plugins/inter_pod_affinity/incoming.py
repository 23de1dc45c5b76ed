"""The affinity terms of the incoming pod as queries over existing pods.

kube-scheduler adds the namespaces that a term's namespaceSelector selects to its namespaces, keeps
the selector, and matches it against an empty set of labels later. Hence a selector that only
requires labels to be absent matches the pods of every namespace.

Worked example: ``namespaces: [a]`` and ``namespaceSelector: {team: x}``, which only namespace ``b``
matches: the query is for pods of ``a`` and ``b``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from proreus.base.bounded_cache import BoundedCache
from proreus.base.known_faults import KnownFault
from proreus.base.kubernetes_version import Change
from proreus.framework.affinity_terms import (
    NO_LABELS,
    NO_TERMS,
    AffinityTerm,
    AffinityTerms,
    affinity_terms,
)
from proreus.framework.handle import Handle
from proreus.framework.many_terms import (
    ManyTerms,
    TermsInNamespaces,
    Weighted,
    negative,
    weighted,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_label_groups import PodMatch, PodQuery
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
    many_required: TermsInNamespaces | None = None
    many_required_anti: TermsInNamespaces | None = None
    many_preferred: tuple[TermsInNamespaces, ...] = ()

    @property
    def has_preferred(self) -> bool:
        """Whether there are preferred terms."""
        return bool(self.preferred or self.many_preferred)


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
        gates = handle.feature_gates
        self._merges = gates.includes(Change.NAMESPACE_SELECTOR_MERGED) or gates.corrects(
            KnownFault.NEGATIVE_NAMESPACE_SELECTOR
        )
        handle.on_change(NAMESPACES, self._namespace_changed)

    def terms_of(self, pod: PodInfo) -> IncomingTerms:
        """Return the terms of a pod."""
        terms = affinity_terms(pod)
        if terms is NO_TERMS:
            return NO_INCOMING_TERMS
        # `affinity_terms` returns one object for equal terms. An id may be reused after that
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

    def in_namespaces(self, many: ManyTerms) -> TermsInNamespaces:
        """Return terms that are matched together, with the namespaces as they are."""
        return TermsInNamespaces(many, self._labels_of, not self._merges)

    def selects(self, term: AffinityTerm, pod: Pod) -> bool:
        """Return whether a term selects a pod, without listing the namespaces that it is about."""
        meta = pod.metadata
        if not term.selector.matches(meta.labels):
            return False
        if not self._merges and term.namespace_selector.matches(NO_LABELS):
            return True
        labels = self._labels_of(meta.namespace)
        if labels is None:
            return meta.namespace in term.namespaces or term.namespace_selector.empty
        return term.covers(meta.namespace, labels)

    def _prepare(self, terms: AffinityTerms) -> IncomingTerms:
        # Each list on its own: a pod with thousands of preferences may require one thing.
        anti = negative(terms.preferred_anti)
        many_required = self._many(terms.many_required, weighted(terms.required))
        many_required_anti = self._many(terms.many_required_anti, weighted(terms.required_anti))
        many_preferred = self._many(terms.many_preferred, terms.preferred)
        many_preferred_anti = self._many(terms.many_preferred_anti, anti)
        matches = () if many_required else tuple(map(self._match, terms.required))
        few_preferred = (
            *(() if many_preferred else terms.preferred),
            *(() if many_preferred_anti else anti),
        )
        return IncomingTerms(
            all_required=PodQuery(tuple(dict.fromkeys(matches))) if matches else None,
            required_keys=tuple(dict.fromkeys(term.topology_key for term in terms.required)),
            required_anti=self._queries(
                (term.topology_key, term)
                for term in (() if many_required_anti else terms.required_anti)
            ),
            preferred=self._queries(
                ((term.topology_key, weight), term) for weight, term in few_preferred
            ),
            error=terms.error,
            many_required=many_required,
            many_required_anti=many_required_anti,
            many_preferred=tuple(
                many for many in (many_preferred, many_preferred_anti) if many is not None
            ),
        )

    def _many(self, many: ManyTerms | None, terms: Weighted) -> TermsInNamespaces | None:
        """Return the terms to be matched together; None if there are few."""
        # To ask each namespace for each selector takes a microsecond, and a set of their names
        # is up to a megabyte.
        if many is None:
            selectors = {term.namespace_selector for _, term in terms} - {NOTHING, EVERYTHING}
            if len(selectors) * len(self._namespaces) <= _MOST_EVALUATIONS:
                return None
            many = ManyTerms(terms)
        return self.in_namespaces(many)

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
