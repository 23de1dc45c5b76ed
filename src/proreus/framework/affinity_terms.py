"""A pod's inter-pod (anti-)affinity terms, parsed.

Pods of one workload have the same terms: parsed once, they are shared by all pods whose affinity is
written the same. They are hashable values, so that pods with equal terms are counted together.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from proreus.base.bounded_cache import BYTES_AN_ENCODED_BYTE, BYTES_AN_ENTRY, RepeatingCache
from proreus.framework.pod_info import PodInfo
from proreus.framework.term_set import AffinityTerm, TermSet
from proreus.objects.pod import Pod, PodAffinity, PodAffinityTerm
from proreus.objects.selectors import SelectorError, parse_label_selector

NO_TERM_SET = TermSet()


class AffinityTerms(Struct, frozen=True):
    """A pod's terms, in the four lists of its spec; preferred terms come with their weights.

    A list with a selector that does not parse is empty, and ``error`` says why.
    """

    required: TermSet = NO_TERM_SET
    required_anti: TermSet = NO_TERM_SET
    preferred: TermSet = NO_TERM_SET
    preferred_anti: TermSet = NO_TERM_SET
    """With negative weights."""
    error: str = ""
    size_bytes: int = BYTES_AN_ENTRY
    """About how much memory they take."""


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
    parts = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    return _parse(pod.metadata.namespace, *parts, size_bytes), size_bytes


# When a pod goes, each pod that waits asks for its terms.
_shared = RepeatingCache(128 * 2**20, _key_of, _parsed)


def _parse(
    namespace: str, affinity_spec: PodAffinity, anti_affinity_spec: PodAffinity, size_bytes: int
) -> AffinityTerms:
    errors: list[str] = []
    # One set for all: a pod may have 15,000 terms.
    own_namespace = frozenset((namespace,))

    def parsed(name: str, terms: tuple[PodAffinityTerm, ...]) -> tuple[AffinityTerm, ...]:
        # One term that does not parse empties the list, as in kube-scheduler's ``PodInfo.Update``,
        # which keeps the error and goes on with the other lists.
        try:
            return tuple([_parse_term(own_namespace, term) for term in terms])
        except SelectorError as error:
            errors.append(f"{name}: {error}")
            return ()

    def preferred(name: str, affinity: PodAffinity, sign: int) -> TermSet:
        # A list that does not parse comes back empty and is paired with no weight at all.
        terms = parsed(name, tuple(one.pod_affinity_term for one in affinity.preferred))
        weights = [sign * one.weight for one in affinity.preferred]
        return TermSet(tuple(zip(weights, terms, strict=False)))

    lists = (
        TermSet.required(parsed("requiredAffinityTerms", affinity_spec.required)),
        TermSet.required(parsed("requiredAntiAffinityTerms", anti_affinity_spec.required)),
        preferred("preferredAffinityTerms", affinity_spec, 1),
        preferred("preferredAntiAffinityTerms", anti_affinity_spec, -1),
    )
    text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else ""
    return AffinityTerms(*lists, error=text, size_bytes=size_bytes)


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
