"""Takes inter-pod terms about other namespaces out of pods.

As a pod is placed, kube-scheduler respects the terms of the pods that run already, whoever wrote
them. Nobody may have a running pod of another namespace evicted by them.
"""

from __future__ import annotations

from msgspec.structs import replace

from proreus.objects.pod import Pod, PodAffinity, PodAffinityTerm


def without_foreign_terms(pod: Pod) -> Pod:
    """Return a pod whose inter-pod terms select pods of its own namespace only.

    Terms with a namespaceSelector are left out.
    """
    affinity = pod.spec.affinity
    if affinity is None:
        return pod
    namespace = pod.metadata.namespace
    own = replace(
        affinity,
        pod_affinity=_own_terms(affinity.pod_affinity, namespace),
        pod_anti_affinity=_own_terms(affinity.pod_anti_affinity, namespace),
    )
    return pod if own == affinity else replace(pod, spec=replace(pod.spec, affinity=own))


def _own_terms(terms: PodAffinity | None, namespace: str) -> PodAffinity | None:
    if terms is None:
        return None
    required = tuple(
        replace(term, namespaces=()) for term in terms.required if _selects_own(term, namespace)
    )
    preferred = tuple(
        replace(one, pod_affinity_term=replace(one.pod_affinity_term, namespaces=()))
        for one in terms.preferred
        if _selects_own(one.pod_affinity_term, namespace)
    )
    return PodAffinity(required, preferred)


def _selects_own(term: PodAffinityTerm, namespace: str) -> bool:
    return term.namespace_selector is None and (not term.namespaces or namespace in term.namespaces)
