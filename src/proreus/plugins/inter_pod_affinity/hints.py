"""Queueing hints: which events may make a pod schedulable that InterPodAffinity rejected.

As in kube-scheduler, namespace selectors are not matched against namespaces here. A selector that
does not parse raises; a hint that fails queues the pod.
"""

from __future__ import annotations

from collections.abc import Iterable

from proreus.feature_gates import FeatureGates
from proreus.framework.affinity_terms import (
    NO_LABELS,
    AffinityTerm,
    AffinityTerms,
    affinity_terms,
    affinity_terms_of,
)
from proreus.framework.events import (
    ADD,
    DELETE,
    NODE,
    UPDATE_NODE_LABEL,
    UPDATE_POD_LABEL,
    ClusterEvent,
)
from proreus.framework.many_terms import ManyTerms
from proreus.framework.pod_events import pod_registrations
from proreus.framework.pod_info import PodInfo
from proreus.framework.verdicts import BoolArray
from proreus.kubernetes_version import Change
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.selectors import SelectorError


def events(gates: FeatureGates) -> Iterable[ClusterEvent]:
    """Return the events that the plugin registers."""
    # A deleted or changed pod helps if it matched any anti-affinity term, instead of all of them.
    any_term = gates.includes(Change.ANTI_AFFINITY_HINTS_OF_ANY_TERM)

    def pod_hint(pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
        return is_schedulable_after_pod_change(pod, old, new, any_term=any_term)

    return (
        *pod_registrations(
            gates,
            assigned=ADD | UPDATE_POD_LABEL | DELETE,
            target=UPDATE_POD_LABEL,
            hint=pod_hint,
        ),
        ClusterEvent(NODE, ADD | UPDATE_NODE_LABEL, is_schedulable_after_node_change),
    )


def is_schedulable_after_pod_change(
    pod: PodInfo, old: Pod | None, new: Pod | None, *, any_term: bool
) -> bool:
    """Return whether a pod that was added, deleted or given other labels may help."""
    meets = _meets_any if any_term else _meets_all
    # The pod's own labels changed: it may match other terms now, its own included.
    if new is not None and new.metadata.uid == pod.uid:
        return True
    if any(other is not None and not _is_placed(other) for other in (old, new)):
        return False
    # An added pod can only satisfy affinity, a deleted one only anti-affinity.
    terms = _without_error(affinity_terms(pod))
    required = terms.required, terms.many_required
    required_anti = terms.required_anti, terms.many_required_anti
    if old is None:
        return new is not None and _meets_all(*required, new)
    if new is None:
        theirs = _without_error(affinity_terms_of(old))
        return meets(*required_anti, old) or meets(
            theirs.required_anti, theirs.many_required_anti, pod.pod
        )
    return (not _meets_all(*required, old) and _meets_all(*required, new)) or (
        meets(*required_anti, old) and not meets(*required_anti, new)
    )


def is_schedulable_after_node_change(pod: PodInfo, old: Node | None, new: Node) -> bool:
    """Return whether a node that was added or given other labels may help."""
    terms = _without_error(affinity_terms(pod))
    labels = new.metadata.labels
    # A new node may be the one that no matching pod is near, even without the topology keys.
    if old is None:
        return bool(terms.required_anti) or any(t.topology_key in labels for t in terms.required)
    before = old.metadata.labels
    for term in terms.required:
        value = labels.get(term.topology_key)
        if value is not None and value != before.get(term.topology_key):
            return True
    for term in terms.required_anti:
        value = before.get(term.topology_key)
        if value is not None and value != labels.get(term.topology_key):
            return True
    return False


def _without_error(terms: AffinityTerms) -> AffinityTerms:
    if terms.error:
        raise SelectorError(terms.error)
    return terms


def _is_placed(pod: Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _meets_any(terms: tuple[AffinityTerm, ...], many: ManyTerms | None, pod: Pod) -> bool:
    if many is not None:
        return _selecting(many, pod) is not None
    meta = pod.metadata
    return any(term.matches(meta.namespace, meta.labels) for term in terms)


def _meets_all(terms: tuple[AffinityTerm, ...], many: ManyTerms | None, pod: Pod) -> bool:
    if many is not None:
        selecting = _selecting(many, pod)
        return selecting is not None and bool(selecting.all())
    meta = pod.metadata
    return bool(terms) and all(term.matches(meta.namespace, meta.labels) for term in terms)


def _selecting(many: ManyTerms, pod: Pod) -> BoolArray | None:
    """Return which terms select a pod, None: none of them; in a namespace without labels."""
    covering = many.covering(pod.metadata.namespace, NO_LABELS)
    return None if covering is None else many.selecting(covering, pod.metadata.labels)
