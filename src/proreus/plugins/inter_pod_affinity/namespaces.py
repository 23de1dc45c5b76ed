"""The namespaces as inter-pod terms see them.

kube-scheduler adds the namespaces that a term's namespaceSelector selects to its namespaces, keeps
the selector, and matches it against an empty set of labels later. Hence a selector that only
requires labels to be absent matches the pods of every namespace.

Worked example: ``namespaces: [a]`` and ``namespaceSelector: {team: x}``, which only namespace ``b``
matches: the term selects pods of ``a`` and ``b``.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.base.known_faults import KnownFault
from proreus.base.kubernetes_version import Change
from proreus.framework.handle import Handle
from proreus.framework.pod_info import PodInfo
from proreus.framework.term_set import NO_LABELS, TermSet, TermsInNamespaces
from proreus.objects.kinds import NAMESPACES, Namespace


class Namespaces:
    """The labels of namespaces, and whether their selectors are matched against no labels, too."""

    # Invariant: ``_labels`` are those of the namespaces as they are now.

    def __init__(self, handle: Handle) -> None:
        self._namespaces: Mapping[str, Namespace] = handle.store(NAMESPACES)
        self._labels: Mapping[str, Mapping[str, str]] | None = None
        gates = handle.feature_gates
        self._everywhere_if_empty = not (
            gates.includes(Change.NAMESPACE_SELECTOR_MERGED)
            or gates.corrects(KnownFault.NEGATIVE_NAMESPACE_SELECTOR)
        )
        handle.on_change(NAMESPACES, self._changed)

    def labels_of(self, pod: PodInfo) -> Mapping[str, str]:
        """Return the labels of a pod's namespace; none if the namespace is unknown."""
        known = self._namespaces.get(pod.namespace)
        return NO_LABELS if known is None else known.metadata.labels

    def within(self, terms: TermSet) -> TermsInNamespaces:
        """Return an incoming pod's terms, about the namespaces as they are now."""
        # Counts that depend on labels of namespaces are kept for as long as these are the same.
        if self._labels is None:
            self._labels = {name: one.metadata.labels for name, one in self._namespaces.items()}
        return TermsInNamespaces(terms, self._labels, self._everywhere_if_empty)

    def _changed(self, old: Namespace | None, new: Namespace | None) -> None:
        before = None if old is None else old.metadata.labels
        if new is None or before != new.metadata.labels:
            self._labels = None
