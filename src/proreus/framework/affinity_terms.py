"""The inter-pod (anti-)affinity terms of a pod, parsed.

Pods of one workload bring the same terms: what was parsed once is shared by all that are written
alike. Terms are hashable values, so that whoever counts pods by term can share the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

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
        near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
        terms = _shared[key] = _parse(namespace, near or PodAffinity(), apart or PodAffinity())
    return terms


def _parse(namespace: str, near: PodAffinity, apart: PodAffinity) -> AffinityTerms:
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
        required("requiredAffinityTerms", near.required),
        required("requiredAntiAffinityTerms", apart.required),
        preferred("preferredAffinityTerms", near),
        preferred("preferredAntiAffinityTerms", apart),
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
