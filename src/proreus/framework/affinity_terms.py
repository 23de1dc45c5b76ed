"""A pod's inter-pod (anti-)affinity terms, parsed.

Pods of one workload have the same terms: parsed once, they are shared by all pods whose affinity is
written the same. Terms are hashable values, so that equal terms of different pods are counted once.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from proreus.base.bounded_cache import (
    BYTES_AN_ENCODED_BYTE,
    BYTES_AN_ENTRY,
    LoadingCache,
    register,
)
from proreus.framework.many_terms import ManyTerms, many_terms, negative, weighted
from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import Pod, PodAffinity, PodAffinityTerm
from proreus.objects.selectors import Selector, SelectorError, parse_label_selector

NO_LABELS: Mapping[str, str] = {}


class AffinityTerm(Struct, frozen=True, cache_hash=True, gc=False):
    """Selects pods by namespace and labels; ``topology_key`` is the node label of its domains.

    A pod is selected if its namespace is one of ``namespaces``, or if ``namespace_selector``
    selects the labels of its namespace (the labels that the caller passes for it).
    """

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str

    def matches(
        self,
        namespace: str,
        labels: Mapping[str, str],
        namespace_labels: Mapping[str, str] = NO_LABELS,
    ) -> bool:
        """Return whether the term selects a pod with these labels in this namespace."""
        return self.covers(namespace, namespace_labels) and self.selector.matches(labels)

    def covers(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether the term is about pods of this namespace."""
        return namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)


class AffinityTerms(Struct, frozen=True):
    """A pod's terms, in the four lists of its spec; preferred terms come with their weights.

    A list with a selector that does not parse is empty, and ``error`` says why.
    """

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[int, AffinityTerm], ...] = ()
    preferred_anti: tuple[tuple[int, AffinityTerm], ...] = ()
    error: str = ""
    size_bytes: int = BYTES_AN_ENTRY
    """About how much memory they take."""
    many_required: ManyTerms | None = None
    many_required_anti: ManyTerms | None = None
    many_preferred: ManyTerms | None = None
    many_preferred_anti: ManyTerms | None = None
    """The lists that are to be matched together; the weights of the last one are negative."""


NO_TERMS = AffinityTerms()

_Key = tuple[str, bytes, bytes]
_encode = msgspec.msgpack.Encoder().encode


def affinity_terms_of(pod: Pod) -> AffinityTerms:
    """Return the terms of a pod, those of its own namespace made explicit."""
    return _shared.of(pod) if _has_terms(pod) else NO_TERMS


def affinity_terms(pod: PodInfo) -> AffinityTerms:
    """Return the terms of a pod, looked up once a pod; see ``affinity_terms_of``."""
    known: AffinityTerms | None = pod.affinity_terms
    if known is None:
        known = pod.affinity_terms = affinity_terms_of(pod.pod)
    return known


def _has_terms(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    return affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None


def _key_of(pod: Pod) -> _Key:
    affinity = pod.spec.affinity
    assert affinity is not None
    encoded = _encode(affinity.pod_affinity), _encode(affinity.pod_anti_affinity)
    return pod.metadata.namespace, *encoded


def _parsed(key: _Key, pod: Pod) -> tuple[AffinityTerms, int]:
    affinity = pod.spec.affinity
    assert affinity is not None
    size_bytes = BYTES_AN_ENTRY + BYTES_AN_ENCODED_BYTE * (len(key[1]) + len(key[2]))
    terms = _parse(
        pod.metadata.namespace,
        affinity.pod_affinity or PodAffinity(),
        affinity.pod_anti_affinity or PodAffinity(),
        size_bytes,
    )
    # Terms keep their hash, which is computed here and not while they are counted.
    for term in (*terms.required, *terms.required_anti):
        hash(term)
    for _, term in (*terms.preferred, *terms.preferred_anti):
        hash(term)
    return terms, size_bytes


class _ParseCache:
    """Parsed terms by namespace and affinity."""

    def __init__(self) -> None:
        self._parsed = LoadingCache(128 * 2**20, _key_of, _parsed)
        self._last_pod: Pod | None = None
        self._last = NO_TERMS
        register(self)

    def of(self, pod: Pod) -> AffinityTerms:
        # When a pod goes, each pod that waits asks for its terms; comparing identity spares them
        # the encoding of the whole affinity.
        if pod is not self._last_pod:
            self._last = self._parsed.of(pod)
            self._last_pod = pod
        return self._last

    def age(self) -> None:
        """Forget the last pod."""
        self._last_pod, self._last = None, NO_TERMS


_shared = _ParseCache()


def _parse(
    namespace: str, affinity_spec: PodAffinity, anti_affinity_spec: PodAffinity, size_bytes: int
) -> AffinityTerms:
    errors: list[str] = []
    # One set for all: a pod may have 15,000 terms.
    own_namespace = frozenset((namespace,))

    def required(name: str, terms: tuple[PodAffinityTerm, ...]) -> tuple[AffinityTerm, ...]:
        # One term that does not parse empties the list, as in kube-scheduler's ``PodInfo.Update``,
        # which keeps the error and goes on with the other lists.
        try:
            return tuple([_parse_term(own_namespace, term) for term in terms])
        except SelectorError as error:
            errors.append(f"{name}: {error}")
            return ()

    def preferred(name: str, affinity: PodAffinity) -> tuple[tuple[int, AffinityTerm], ...]:
        # A list that does not parse comes back empty and is paired with no weight at all.
        terms = tuple(weighted.pod_affinity_term for weighted in affinity.preferred)
        parsed = required(name, terms)
        return tuple(zip((w.weight for w in affinity.preferred), parsed, strict=False))

    lists = (
        required("requiredAffinityTerms", affinity_spec.required),
        required("requiredAntiAffinityTerms", anti_affinity_spec.required),
        preferred("preferredAffinityTerms", affinity_spec),
        preferred("preferredAntiAffinityTerms", anti_affinity_spec),
    )
    all_required, all_required_anti, all_preferred, all_preferred_anti = lists
    text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else ""
    return AffinityTerms(
        *lists,
        error=text,
        size_bytes=size_bytes,
        many_required=many_terms(weighted(all_required)),
        many_required_anti=many_terms(weighted(all_required_anti)),
        many_preferred=many_terms(all_preferred),
        many_preferred_anti=many_terms(negative(all_preferred_anti)),
    )


def _parse_term(own_namespace: frozenset[str], term: PodAffinityTerm) -> AffinityTerm:
    # Neither names nor a selector: the API defines this as the pod's own namespace. An empty
    # selector is different, it selects all namespaces.
    own = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        namespaces=own_namespace if own else frozenset(term.namespaces),
        namespace_selector=parse_label_selector(term.namespace_selector),
        selector=parse_label_selector(term.label_selector),
        topology_key=term.topology_key,
    )
